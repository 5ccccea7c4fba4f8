// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares packing with its definition, which places each element by the formula.

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
    encode: &mut E,
    case: &Case,
    data: &[E::Host],
    bits: impl Fn(usize, E::Host) -> Bits + Copy,
) {
    check_run::<16, E>(encode, case, data, bits);
    check_run::<32, E>(encode, case, data, bits);
    check_run::<64, E>(encode, case, data, bits);
}

fn check_run<const RUN: usize, E: Encode>(
    encode: &mut E,
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
    /// As many elements as the matrix has, with bits from the seed.
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
        check(&mut Bytes, &case, &case.data(|bits| bits as i8), |_, x| u16::from(x as u8));
        let halves = case.data(|bits| f16::from_bits(bits as u16));
        check(&mut Halves, &case, &halves, |_, x| x.to_bits());
    }

    #[test]
    fn conversions(case in case()) {
        let floats = case.data(f32::from_bits);
        check(&mut RoundedHalves, &case, &floats, |_, x| f16::from_f32(x).to_bits());

        let floats = case.data(|bits| (bits as i32 >> 16) as f32);
        let mut scales = vec![-1.0; case.rows];
        let block = MatrixView::new(&floats, case.rows, case.columns).unwrap();
        let block = block.block(0..case.rows, case.from..case.columns);
        let expected: Vec<f32> = (0..case.rows)
            .map(|row| {
                let largest = block.row(row).iter().fold(0.0_f32, |max, x| max.max(x.abs()));
                largest / 119.0
            })
            .collect();
        let mut encode = QuantisedBytes {
            limit: 119.0,
            scales: &mut scales,
        };
        check(&mut encode, &case, &floats, |m, x| {
            if expected[m] == 0.0 {
                return 0;
            }
            let q = (x * (1.0 / expected[m])).round_ties_even();
            u16::from(q as i8 as u8)
        });
        let rows = case.rows.min(case.tile_rows);
        prop_assert_eq!(&scales[..rows], &expected[..rows]);
    }

    #[test]
    fn nibbles(case in case()) {
        let bytes = case.data(|bits| (bits as i8).min(nibble::SPLIT_MAX));
        check(&mut LowNibbles, &case, &bytes, |_, x| u16::from(x as u8 & 15));
        check(&mut SplitNibbles, &case, &bytes, |row, x| {
            let h = (i16::from(x) + 8).div_euclid(16);
            let part = if row % 2 == 0 { h } else { i16::from(x) - 16 * h };
            part.cast_unsigned() & 15
        });
    }
}

#[test]
fn a_degenerate_tile_is_left_alone() {
    let data = [1, 2];
    let view = MatrixView::new(&data, 1, 2).unwrap();
    let mut tile = [7; 15];
    pack::<16, _>(&mut Bytes, view, 0, &mut []);
    pack::<16, _>(&mut Bytes, view, 1, &mut tile);
    assert_eq!(tile, [7; 15]);
}

#[test]
fn rows_that_cannot_be_scaled() {
    let data = [254.0, f32::NAN, 1e-40, f32::INFINITY, 3.0];
    let view = MatrixView::new(&data, 5, 1).unwrap();
    let mut scales = [1.0; 4];
    let mut tile = [7; 5 * 16];
    let mut encode = QuantisedBytes {
        limit: 127.0,
        scales: &mut scales,
    };
    pack::<16, _>(&mut encode, view, 5, &mut tile);
    let mut expected = [0; 5 * 16];
    expected[0] = 127;
    assert_eq!(tile, expected);
    assert_eq!((scales[0], scales[2]), (2.0, 0.0));
    assert!(scales[1].is_nan() && scales[3].is_nan());
}
