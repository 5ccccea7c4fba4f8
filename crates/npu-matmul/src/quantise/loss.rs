// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantisation error.

/// Normalised mean square error of `approximation`: sum (x - y)^2 / sum x^2, added up in f64. It is
/// 0 if both are zeros or empty, infinite if only `exact` is zeros, and NaN if any value is.
/// Elements beyond the shorter slice are ignored.
#[must_use]
pub fn nmse(exact: &[f64], approximation: &[f64]) -> f64 {
    let mut error = 0.0;
    let mut power = 0.0;
    for (x, y) in exact.iter().zip(approximation) {
        error += (x - y) * (x - y);
        power += x * x;
    }
    if error == 0.0 { 0.0 } else { error / power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_known_numbers() {
        assert_eq!(nmse(&[3.0, 4.0], &[3.0, 3.0]), 1.0 / 25.0);
        assert_eq!(nmse(&[0.0], &[0.0]), 0.0);
        assert_eq!(nmse(&[], &[]), 0.0);
        assert_eq!(nmse(&[0.0], &[1.0]), f64::INFINITY);
        assert!(nmse(&[f64::NAN], &[1.0]).is_nan());
    }
}
