// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reference implementation of a matmul; tests compare with it.

use half::f16;

/// Computes C = A x B^T for integers. A is `m x k`, B `n x k`, C `m x n`, all row major. Sums wrap
/// around at 32 bits, like the engine's.
#[must_use]
pub fn multiply_i32(m: usize, n: usize, k: usize, a: &[i8], b: &[i8]) -> Vec<i32> {
    let product = |i: usize, j: usize| i32::from(a[i]) * i32::from(b[j]);
    let dot = |i: usize, j: usize| {
        (0..k).fold(0_i32, |s, x| s.wrapping_add(product(i * k + x, j * k + x)))
    };
    (0..m * n).map(|at| dot(at / n, at % n)).collect()
}

/// The expected value of one element of a float matmul.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The exact sum, in f64.
    pub value: f64,
    /// Largest error of an f32 result. With S = sum of |a*b|: S * 2^-20 for the NPU's f32 additions
    /// in an unknown order, S * 2^-24 for each K tile that the CPU adds to earlier ones, and half
    /// an ulp.
    pub tolerance: f64,
}

/// Computes C = A x B^T for binary16, with the tolerance of each element for `k_tiles` K tiles.
#[must_use]
pub fn multiply_f64(
    m: usize,
    n: usize,
    k: usize,
    a: &[f16],
    b: &[f16],
    k_tiles: usize,
) -> Vec<Expected> {
    let dot = |i: usize, j: usize| {
        let products = (0..k).map(|x| a[i * k + x].to_f64() * b[j * k + x].to_f64());
        let (value, sum) = products.fold((0.0, 0.0), |(v, s), p| (v + p, s + p.abs()));
        Expected {
            value,
            tolerance: tolerance(value, sum, k_tiles),
        }
    };
    (0..m * n).map(|at| dot(at / n, at % n)).collect()
}

/// [`Expected::tolerance`] for a sum `value`, the sum of the terms' magnitudes `magnitudes`, and
/// `k_tiles` K tiles.
#[must_use]
pub fn tolerance(value: f64, magnitudes: f64, k_tiles: usize) -> f64 {
    let additions = k_tiles.saturating_sub(1) as f64;
    let share = 0.5_f64.powi(20) + additions * 0.5_f64.powi(24);
    let near = value.abs() as f32;
    let half_ulp = (f64::from(near.next_up()) - f64::from(near)) / 2.0;
    magnitudes * share + half_ulp
}
