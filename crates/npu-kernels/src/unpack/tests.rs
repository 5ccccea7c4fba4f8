// SPDX-License-Identifier: MIT OR Apache-2.0
use std::ops::Range;

use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::*;
use crate::ATOM_BYTES;

/// Offset of element (m, n).
fn at<T>(tile_rows: usize, m: usize, n: usize) -> usize {
    let lanes = ATOM_BYTES / size_of::<T>();
    (n / lanes * tile_rows + m) * ATOM_BYTES + n % lanes * size_of::<T>()
}

#[derive(Clone, Debug)]
struct Case {
    tile: Vec<u8>,
    tile_rows: usize,
    first_row: usize,
    rows: usize,
    stride: usize,
    columns: Range<usize>,
}

impl Case {
    fn to<'a, S>(&self, rows: &'a mut [S]) -> Destination<'a, S> {
        Destination {
            rows,
            stride: self.stride,
            columns: self.columns.clone(),
        }
    }

    fn tile(&self) -> TileRows<'_> {
        TileRows {
            bytes: &self.tile,
            rows: self.tile_rows,
            first: self.first_row,
        }
    }

    /// The definition: calls `take` for each element, with row, column and value of the result.
    fn each<T: FromBytes, S>(&self, out: &mut [S], take: impl Fn(usize, usize, T, &mut S)) {
        for (index, row) in out.chunks_mut(self.stride).enumerate() {
            let m = self.first_row + index;
            let Some(columns) = row.get_mut(self.columns.clone()) else {
                continue;
            };
            for (n, out) in columns.iter_mut().enumerate() {
                let at = at::<T>(self.tile_rows, m, n);
                if m < self.tile_rows && at + size_of::<T>() <= self.tile.len() {
                    let x = T::read_from_prefix(&self.tile[at..]).unwrap().0;
                    take(index, self.columns.start + n, x, out);
                }
            }
        }
    }
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (
        1..40_usize,
        0..40_usize,
        0..40_usize,
        1..300_usize,
        0..60_usize,
    );
    (shape, 0..50_usize, 0..290_usize).prop_flat_map(|(shape, from, columns)| {
        let (tile_rows, first_row, rows, stride, surfaces) = shape;
        prop::collection::vec(any::<u8>(), surfaces * tile_rows * ATOM_BYTES).prop_map(
            move |tile| Case {
                tile,
                tile_rows,
                first_row,
                rows,
                stride,
                columns: from..from + columns,
            },
        )
    })
}

fn check<T: Partial<Sum: IntoBytes + Immutable> + FromBytes>(case: &Case, old: T::Sum) {
    for mode in [Mode::Store, Mode::Add] {
        let mut fast = vec![old; case.rows * case.stride];
        let mut slow = fast.clone();
        unpack::<T>(case.tile(), mode, case.to(&mut fast));
        case.each(&mut slow, |_, _, x: T, sum| {
            *sum = match mode {
                Mode::Store => x.widen(),
                Mode::Add => x.add_to(*sum),
            };
        });
        assert!(fast.as_bytes() == slow.as_bytes(), "{mode:?}");
    }
}

/// Whether two floats are equal or both NaN.
fn same(left: f32, right: f32) -> bool {
    left.to_bits() == right.to_bits() || left.is_nan() && right.is_nan()
}

/// The scales of an element of the result: NaN behind the last.
fn scales_of(scales: &Scales<'_>, row: usize, column: usize) -> [f32; 2] {
    let row = scales.rows.get(row);
    [row, scales.columns.get(column)].map(|scale| scale.copied().unwrap_or(f32::NAN))
}

fn check_dequantised<T: Partial<Sum = i32> + FromBytes>(case: &Case, old: i32, scales: Scales<'_>) {
    for mode in [Mode::Store, Mode::Add] {
        let mut fast = vec![old; case.rows * case.stride];
        let mut slow = fast.clone();
        unpack_dequantised::<T>(case.tile(), mode, scales, case.to(&mut fast));
        case.each(&mut slow, |row, column, x: T, out| {
            let sum = match mode {
                Mode::Store => x.widen(),
                Mode::Add => x.add_to(*out),
            };
            let [row, column] = scales_of(&scales, row, column).map(f64::from);
            let float = (f64::from(sum) * row * column) as f32;
            *out = float.to_bits().cast_signed();
        });
        for (fast, slow) in fast.into_iter().zip(slow) {
            let [fast, slow] = [fast, slow].map(|bits| f32::from_bits(bits.cast_unsigned()));
            assert!(same(fast, slow), "{mode:?}: {fast} for {slow}");
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(256))]

    #[test]
    fn equals_the_reference(case in case()) {
        check::<i32>(&case, i32::MAX - 9);
        check::<i16>(&case, i32::MAX - 9);
    }

    #[test]
    fn floats_equal_the_reference(mut case in case()) {
        // Finite floats of similar size: the bits of NaNs may differ.
        for bytes in case.tile.as_chunks_mut::<4>().0 {
            *bytes = (f32::from(bytes[0]) / 7.0).to_le_bytes();
        }
        check::<f32>(&case, 1.5);
    }
}

proptest! {
    #![proptest_config(test_support::cases(128))]

    #[test]
    fn scaled_results_equal_the_reference(
        case in case(),
        scales in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..600),
        old in any::<i32>(),
    ) {
        let (rows, columns) = scales.split_at(scales.len() / 4);
        let scales = Scales { rows, columns };
        check_dequantised::<i32>(&case, old, scales);
        check_dequantised::<i16>(&case, old, scales);
    }
}

#[test]
fn a_degenerate_tile_changes_nothing() {
    let mut out = [3_i32; 4];
    for (tile_rows, stride) in [(0, 4), (4, 0), (0, 0)] {
        let to = Destination {
            rows: &mut out,
            stride,
            columns: 0..4,
        };
        let tile = TileRows {
            bytes: &[],
            rows: tile_rows,
            first: 0,
        };
        unpack::<i32>(tile, Mode::Store, to);
    }
    assert_eq!(out, [3; 4]);
}
