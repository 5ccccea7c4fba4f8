// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts integer sums to floats.

/// The float for an integer sum: the sum times both scales. It multiplies in f64, because partial
/// results may leave the range of f32 even if the result is within it.
#[inline(always)]
#[must_use]
pub fn dequantise(sum: i32, row_scale: f32, column_scale: f32) -> f32 {
    scaled(sum.into(), row_scale.into(), column_scale.into())
}

/// A number times two scales.
#[inline(always)]
pub(crate) fn scaled(number: f64, row_scale: f64, column_scale: f64) -> f32 {
    (number * row_scale * column_scale) as f32
}

/// `value` plus a number times two scales: computed in f64, rounded once.
#[inline(always)]
pub(crate) fn add_scaled(value: f32, number: f64, row_scale: f64, column_scale: f64) -> f32 {
    (f64::from(value) + number * row_scale * column_scale) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_of_any_size_give_the_result_that_fits() {
        assert_eq!(dequantise(1 << 20, 1e35, 1e-35), (1 << 20) as f32);
        assert_eq!(dequantise(3, 0.0, 1e38), 0.0);
        assert!(dequantise(1 << 20, 1e35, 0.0) == 0.0);
    }
}
