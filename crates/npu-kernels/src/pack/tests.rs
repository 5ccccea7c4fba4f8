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
    bits: impl Fn(E::Host) -> Bits,
) -> Vec<u8> {
    let mut tile = vec![0; len];
    let run = RUN * 8 / E::BITS;
    for m in 0..matrix.rows().min(tile_rows) {
        for (k, &value) in matrix.row(m).iter().enumerate() {
            let at = (k / run * tile_rows + m) * RUN * 8 + k % run * E::BITS;
            if at / 8 < len {
                let value = bits(value).to_le_bytes();
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
fn check<E: Encode>(case: &Case, data: &[E::Host], bits: impl Fn(E::Host) -> Bits + Copy) {
    check_run::<16, E>(case, data, bits);
    check_run::<32, E>(case, data, bits);
    check_run::<64, E>(case, data, bits);
}

fn check_run<const RUN: usize, E: Encode>(
    case: &Case,
    data: &[E::Host],
    bits: impl Fn(E::Host) -> Bits,
) {
    let whole = MatrixView::new(data, case.rows, case.columns).unwrap();
    let block = whole.block(0..case.rows, case.from..case.columns);
    let len = case.runs * case.tile_rows * RUN;
    let mut tile = vec![0xa5; len + 3];
    pack::<RUN, E>(block, case.tile_rows, &mut tile);
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

proptest! {
    #![proptest_config(test_support::cases(48))]

    #[test]
    fn each_encoding_equals_its_definition(
        rows in 1..40_usize,
        columns in 1..700_usize,
        from in 0..50_usize,
        tile_rows in 1..40_usize,
        runs in 0..60_usize,
        seed in prop::collection::vec(any::<u32>(), 97),
    ) {
        let case = Case { rows, columns, from, tile_rows, runs, seed };
        check::<Bytes>(&case, &case.data(|bits| bits as i8), |x| u16::from(x as u8));
        let halves = case.data(|bits| f16::from_bits(bits as u16));
        check::<Halves>(&case, &halves, f16::to_bits);
        check::<LowNibbles>(&case, &case.data(|bits| bits as i8), |x| u16::from(x as u8 & 15));
    }
}

#[test]
fn a_degenerate_tile_is_left_alone() {
    let data = [1, 2];
    let view = MatrixView::new(&data, 1, 2).unwrap();
    let mut tile = [7; 15];
    pack::<16, Bytes>(view, 0, &mut []);
    pack::<16, Bytes>(view, 1, &mut tile);
    assert_eq!(tile, [7; 15]);
}
