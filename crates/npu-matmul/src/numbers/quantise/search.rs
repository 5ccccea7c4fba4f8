// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches for the scale with the least error.
//!
//! A scale below max|x| / limit clips the largest elements and resolves all others better. Data
//! with heavy tails gains from clipping; uniform data loses. So the search tries a number of
//! scales, max|x| / limit included.

use npu_kernels::quantise::row_scale;

/// Number of scales tried, evenly spaced from the largest down to [`SMALLEST`] times it. Neighbours
/// differ by one percent, so more are not worth the time.
const STEPS: u32 = 80;

/// Smallest scale tried, as a fraction of the largest.
const SMALLEST: f32 = 0.2;

/// Scale with the least square error for `values`, quantised to `-limit..=limit`. `limit` is an
/// integer from 1 to 127. Returns 0 or NaN for the same values as [`super::quantise_rows`].
#[must_use]
pub fn least_square_scale(values: &[f32], limit: f32) -> f32 {
    let largest = row_scale(values, limit);
    if largest.is_nan() || largest == 0.0 {
        return largest;
    }
    // The largest of equals.
    let mut best = (square_error(values, largest, limit), largest);
    for step in 1..=STEPS {
        let part = 1.0 - (1.0 - SMALLEST) * step as f32 / STEPS as f32;
        let scale = largest * part;
        let error = square_error(values, scale, limit);
        // A subnormal scale has no finite inverse.
        if error < best.0 && scale >= f32::MIN_POSITIVE {
            best = (error, scale);
        }
    }
    best.1
}

/// Sum of the squared errors of all elements.
fn square_error(values: &[f32], scale: f32, limit: f32) -> f64 {
    let inverse = scale.recip();
    values
        .iter()
        .map(|&x| {
            let q = (x * inverse).clamp(-limit, limit).round_ties_even();
            (f64::from(x) - f64::from(q) * f64::from(scale)).powi(2)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Many small values and a few large ones.
    fn heavy_tail() -> Vec<f32> {
        (0..4096_i32)
            .map(|at| {
                let x = ((at * 37) % 201 - 100) as f32 / 100.0;
                if at % 1024 == 5 { 6.0 * x.signum() } else { x }
            })
            .collect()
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn the_least_square_error_is_never_more_than_that_of_absmax(
            values in prop::collection::vec(-1e3_f32..1e3, 1..200),
            power in 1..6_i32,
            limit in 1..=127_u8,
        ) {
            let limit = f32::from(limit);
            let values: Vec<f32> = values.iter().map(|x| (x / 1e3).powi(power)).collect();
            let largest = row_scale(&values, limit);
            prop_assume!(largest > 0.0);
            let found = least_square_scale(&values, limit);
            let error = |scale| square_error(&values, scale, limit);
            prop_assert!(error(found) <= error(largest));
        }

        #[test]
        fn any_bits_give_a_scale_that_can_be_used(
            values in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..60),
        ) {
            let scale = least_square_scale(&values, 127.0);
            let usable = scale >= f32::MIN_POSITIVE && scale.is_finite();
            prop_assert!(usable || scale == 0.0 || scale.is_nan(), "{scale}");
            let finite = values.iter().all(|x| x.is_finite());
            prop_assert_eq!(scale.is_nan(), !finite);
        }
    }

    #[test]
    fn coarse_integers_of_a_heavy_tail_gain_from_clipping() {
        let values = heavy_tail();
        let limit = 7.0;
        let largest = row_scale(&values, limit);
        let error = |scale| square_error(&values, scale, limit);
        assert_eq!(largest, 6.0 / 7.0);
        assert!(error(least_square_scale(&values, limit)) < 0.7 * error(largest));
    }
}
