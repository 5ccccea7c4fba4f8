// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantises rows to 8 bits.

use npu_kernels::quantise::quantise_row;

/// Quantises the rows of a row-major matrix with `columns` columns. Returns the integers, and one
/// scale for each row: max|x| / 127, or 0 or NaN for special rows; see the module.
#[must_use]
pub fn quantise_rows(matrix: &[f32], columns: usize) -> (Vec<i8>, Vec<f32>) {
    let columns = columns.max(1);
    let mut integers = vec![0; matrix.len()];
    let rows = matrix.chunks(columns).zip(integers.chunks_mut(columns));
    let scales = rows.map(|(row, out)| quantise_row(row, out)).collect();
    (integers, scales)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition as scalar code.
    fn quantise_row_reference(row: &[f32]) -> (Vec<i8>, f32) {
        if row.iter().any(|x| !x.is_finite()) {
            return (vec![0; row.len()], f32::NAN);
        }
        let largest = row.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        let scale = largest / 127.0;
        if scale < f32::MIN_POSITIVE {
            return (vec![0; row.len()], 0.0);
        }
        let inverse = 1.0 / scale;
        let q = row.iter().map(|x| (x * inverse).round_ties_even() as i8);
        (q.collect(), scale)
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        /// Also rows with a NaN or infinity, and rows whose scale would be subnormal.
        #[test]
        fn fast_equals_reference(
            columns in 1..70_usize,
            matrix in prop_oneof![
                prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 1..140),
                prop::collection::vec(-1e3_f32..1e3, 1..140),
                prop::collection::vec(-2e-36_f32..2e-36, 1..140),
                prop::collection::vec(prop::sample::select(&[0.0, -0.0, f32::MAX][..]), 1..140),
            ],
        ) {
            let (integers, scales) = quantise_rows(&matrix, columns);
            let rows = matrix.chunks(columns).zip(integers.chunks(columns));
            prop_assert_eq!(rows.len(), scales.len());
            for ((row, integers), scale) in rows.zip(scales) {
                let (expected, expected_scale) = quantise_row_reference(row);
                prop_assert_eq!(integers, expected);
                prop_assert_eq!(scale.to_bits(), expected_scale.to_bits());
            }
        }
    }
}
