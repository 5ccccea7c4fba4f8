// SPDX-License-Identifier: MIT OR Apache-2.0
//! Symmetric quantisation: integers with a scale for each row of a matrix.
//!
//! A row x becomes integers q in -127..=127 and a scale s with x ~ s * q, where s = max|x| / 127
//! and q = round(x / s), halves to even. A row is one token of the activations, or one output
//! channel of the weights B[N, K]. A sum is dequantised as `i32 * row scale * column scale`.
//!
//! Special rows:
//!  - A row of zeros, or one whose scale would be subnormal (max|x| below about 1.5e-36), becomes
//!    zeros with scale 0.
//!  - A row with a NaN or infinity becomes zeros with scale NaN. All results that depend on it are
//!    NaN; other results are unaffected.
//!
//! [`Quantisation`] lists the schemes of an engine. [`rotate`] spreads outliers over a row, and
//! [`nmse`] measures errors.

pub mod rotate;
mod rows;
mod scheme;

pub use rows::quantise_rows;
pub use scheme::{INT8_K_MAX, Quantisation};

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
