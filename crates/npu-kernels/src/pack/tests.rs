// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packing against its definition: each element put where the formula says,
//! one by one.

use proptest::prelude::*;

use super::*;

/// A packed element and its bits.
type Bits = u16;

/// A tile of `len` bytes, from the bits of each element.
fn reference<const RUN: usize, E: Encode>(
    matrix: MatrixView<'_, E::Host>,
    tile_rows: usize,
    len: usize,
    bits: impl Fn(usize, E::Host) -> Bits,
) -> Vec<u8> {
    let mut tile = vec![0; len];
    let run = RUN * 8 / E::BITS;
    for m in 0..matrix.rows().min(tile_rows) {
        for (k, &value) in matrix.row(m).iter().enumerate() {
            let at = (k / run * tile_rows + m) * RUN * 8 + k % run * E::BITS;
            if at / 8 < len {
                let value = bits(m, value).to_le_bytes();
                tile[at / 8] |= value[0] << (at % 8);
                if E::BITS == 16 {
                    tile[at / 8 + 1] |= value[1];
                }
            }
        }
    }
    tile
}

/// Packs both ways, over junk.
fn check<E: Encode>(
    encode: &E,
    case: &Case,
    data: &[E::Host],
    bits: impl Fn(usize, E::Host) -> Bits + Copy,
) {
    check_run::<16, E>(encode, case, data, bits);
    check_run::<32, E>(encode, case, data, bits);
    check_run::<64, E>(encode, case, data, bits);
}

fn check_run<const RUN: usize, E: Encode>(
    encode: &E,
    case: &Case,
    data: &[E::Host],
    bits: impl Fn(usize, E::Host) -> Bits,
) {
    let whole = MatrixView::new(data, case.rows, case.columns).unwrap();
    let block = whole.block(0..case.rows, case.from..case.columns);
    let len = case.runs * case.tile_rows * RUN;
    let mut tile = vec![0xa5; len + 3];
    pack::<RUN, E>(encode, block, case.tile_rows, &mut tile);
    assert_eq!(tile.split_off(len), [0xa5; 3]);
    let expected = reference::<RUN, E>(block, case.tile_rows, len, bits);
    assert_eq!(tile, expected, "runs of {RUN}");
}

#[derive(Clone, Debug)]
struct Case {
    rows: usize,
    columns: usize,
    from: usize,
    tile_rows: usize,
    runs: usize,
    seed: Vec<u32>,
}

impl Case {
    /// As many elements as the matrix has, of the seed's bits.
    fn data<T>(&self, element: impl Fn(u32) -> T) -> Vec<T> {
        (0..self.rows * self.columns)
            .map(|at| element(self.seed[at % self.seed.len()].rotate_left(at as u32 / 7)))
            .collect()
    }
}

fn case() -> impl Strategy<Value = Case> {
    let seed = prop::collection::vec(any::<u32>(), 97);
    let shape = (1..40_usize, 1..700_usize, 1..40_usize, 0..60_usize);
    (shape, 0..50_usize, seed).prop_map(|((rows, columns, tile_rows, runs), from, seed)| Case {
        rows,
        columns,
        from,
        tile_rows,
        runs,
        seed,
    })
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    #[test]
    fn copies(case in case()) {
        check(&Bytes, &case, &case.data(|bits| bits as i8), |_, x| u16::from(x as u8));
        let halves = case.data(|bits| f16::from_bits(bits as u16));
        check(&Halves, &case, &halves, |_, x| x.to_bits());
    }

    #[test]
    fn conversions(case in case()) {
        let floats = case.data(f32::from_bits);
        check(&RoundedHalves, &case, &floats, |_, x| f16::from_f32(x).to_bits());

        let floats = case.data(|bits| (bits as i32 >> 16) as f32);
        let inverses: Vec<f32> = (0..case.rows).map(|row| row as f32 / 4096.0).collect();
        let encode = Quantised { inverses: &inverses, limit: 119.0 };
        check(&encode, &case, &floats, |m, x| {
            let q = (x * inverses[m]).round_ties_even().clamp(-119.0, 119.0);
            u16::from(q as i8 as u8)
        });
    }

    #[test]
    fn nibbles(case in case()) {
        let bytes = case.data(|bits| (bits as i8).min(nibble::SPLIT_MAX));
        check(&LowNibbles, &case, &bytes, |_, x| u16::from(x as u8 & 15));
        check(&HighNibbles, &case, &bytes, |_, x| {
            (i16::from(x) + 8).div_euclid(16).cast_unsigned() & 15
        });
    }
}

#[test]
fn a_degenerate_tile_is_left_alone() {
    let data = [1, 2];
    let view = MatrixView::new(&data, 1, 2).unwrap();
    let mut tile = [7; 15];
    pack::<16, _>(&Bytes, view, 0, &mut []);
    pack::<16, _>(&Bytes, view, 1, &mut tile);
    assert_eq!(tile, [7; 15]);
}

#[test]
fn a_row_without_a_scale_is_zero() {
    let data = [5.0, f32::NAN];
    let view = MatrixView::new(&data, 2, 1).unwrap();
    for inverses in [&[1.0][..], &[1.0, 0.0]] {
        let mut tile = [7; 32];
        let encode = Quantised {
            inverses,
            limit: 127.0,
        };
        pack::<16, _>(&encode, view, 2, &mut tile);
        let mut expected = [0; 32];
        expected[0] = 5;
        assert_eq!(tile, expected);
    }
}
