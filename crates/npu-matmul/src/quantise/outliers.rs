// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns that are far larger than the others, and FP16 with a scale that
//! holds them.

use half::f16;
use rayon::prelude::*;

/// Rows that one thread looks at.
const ROWS_PER_CHUNK: usize = 64;

/// The columns of a row-major matrix with `k` columns whose largest magnitude
/// is more than `times` that of the median column, in order. Columns of zeros
/// do not count for the median.
///
/// Language models have a few such channels in the activations of most layers,
/// at the same place for all inputs.
#[must_use]
pub fn outlier_columns(matrix: &[f32], k: usize, times: f32) -> Vec<usize> {
    let largest = largest_of_columns(matrix, k);
    let mut present: Vec<f32> = largest.iter().copied().filter(|&x| x > 0.0).collect();
    if present.is_empty() {
        return Vec::new();
    }
    let middle = present.len() / 2;
    let (_, median, _) = present.select_nth_unstable_by(middle, f32::total_cmp);
    let limit = f64::from(*median) * f64::from(times);
    (0..k)
        .filter(|&at| f64::from(largest[at]) > limit)
        .collect()
}

/// The largest magnitude of each column; NaNs do not count.
fn largest_of_columns(matrix: &[f32], k: usize) -> Vec<f32> {
    let none = || vec![0.0_f32; k];
    let larger = |mut max: Vec<f32>, row: &[f32]| {
        for (max, x) in max.iter_mut().zip(row) {
            *max = max.max(x.abs());
        }
        max
    };
    let k = k.max(1);
    matrix
        .par_chunks(k * ROWS_PER_CHUNK)
        .map(|rows| rows.chunks_exact(k).fold(none(), larger))
        .reduce(none, |a, b| larger(a, &b))
}

/// Rounds values to binary16 as multiples of a power of two, which is returned
/// and so large that none overflows: all magnitudes are below 2. NaN, and
/// zeros, where there is an infinity or a NaN.
pub(crate) fn to_halves(values: impl Iterator<Item = f32> + Clone, out: &mut [f16]) -> f32 {
    // As integers, magnitudes are in order, NaNs above all.
    let largest = values.clone().map(|x| x.abs().to_bits()).max();
    let largest = f32::from_bits(largest.unwrap_or(0));
    if !largest.is_finite() {
        out.fill(f16::ZERO);
        return f32::NAN;
    }
    let scale = f32::from_bits(largest.to_bits() & EXPONENT_BITS).max(f32::MIN_POSITIVE);
    for (half, x) in out.iter_mut().zip(values) {
        *half = f16::from_f32(x / scale);
    }
    scale
}

/// The exponent of an f32.
const EXPONENT_BITS: u32 = 0x7f80_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_far_above_the_median() {
        let k = 5;
        let mut matrix = vec![1.0, -2.0, 0.0, 3.0, 1.0];
        matrix.extend([-0.5, 1.0, 0.0, -2.0, 100.0]);
        // Largest: 1, 2, 0, 3, 100; median of the four that are not 0: 3.
        assert_eq!(outlier_columns(&matrix, k, 6.0), [4]);
        assert_eq!(outlier_columns(&matrix, k, 0.5), [1, 3, 4]);
        assert_eq!(outlier_columns(&matrix, k, f32::NAN), [0; 0]);
        assert_eq!(outlier_columns(&[0.0; 10], k, 1.0), [0; 0]);
        assert_eq!(outlier_columns(&[], 0, 1.0), [0; 0]);
        // More rows than one thread takes, and the outlier in the last.
        let mut tall = vec![1.0; 1000 * k];
        tall[999 * k + 2] = -50.0;
        tall[3] = f32::NAN;
        assert_eq!(outlier_columns(&tall, k, 6.0), [2]);
    }

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn halves_keep_eleven_bits(
            values in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..20),
        ) {
            let mut halves = vec![f16::NAN; values.len()];
            let scale = to_halves(values.iter().copied(), &mut halves);
            if values.iter().any(|x| !x.is_finite()) {
                prop_assert!(scale.is_nan());
                prop_assert!(halves.iter().all(|&x| x == f16::ZERO));
                return Ok(());
            }
            prop_assert!(scale > 0.0 && scale.to_bits() & !EXPONENT_BITS == 0);
            for (&x, half) in values.iter().zip(&halves) {
                let back = half.to_f64() * f64::from(scale);
                let x = f64::from(x);
                prop_assert!(half.to_f64().abs() <= 2.0);
                // Half an ulp: of 11 bits, or of the least binary16.
                let ulp = (x.abs() * 2_f64.powi(-11)).max(f64::from(scale) * 2_f64.powi(-25));
                prop_assert!((back - x).abs() <= ulp, "{} for {}", back, x);
            }
        }
    }
}
