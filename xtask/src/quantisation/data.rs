// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands with known distributions.

use std::f64::consts::TAU;

/// Rows of A.
pub(super) const M: usize = 48;

/// Output channels.
pub(super) const N: usize = 64;

/// Depth of the products: elements of a sum.
pub(super) const K: usize = 1024;

/// Columns of the activations that are large: as in language models, few and
/// the same in each row.
const LARGE_COLUMNS: [usize; 6] = [5, 150, 333, 512, 700, 1001];

/// Factor by which such a column is larger than the others.
const LARGE: f32 = 60.0;

/// One in so many weights is large, anywhere.
const LARGE_WEIGHTS: usize = 400;

/// Factor by which such a weight is larger than the others.
const LARGE_WEIGHT: f32 = 8.0;

/// A and B of a product.
pub(super) struct OperandMatrices {
    /// M x K.
    pub(super) a: Vec<f32>,
    /// N x K.
    pub(super) b: Vec<f32>,
}

impl OperandMatrices {
    /// Standard normal numbers.
    pub(super) fn gaussian() -> Self {
        Self {
            a: normal(1, M * K),
            b: normal(2, N * K),
        }
    }

    /// The same with large columns of A and large elements of B.
    pub(super) fn outliers() -> Self {
        let Self { mut a, mut b } = Self::gaussian();
        for row in a.chunks_mut(K) {
            for column in LARGE_COLUMNS {
                row[column] *= LARGE;
            }
        }
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..N * K / LARGE_WEIGHTS {
            b[random.usize(..N * K)] *= LARGE_WEIGHT;
        }
        Self { a, b }
    }

    /// The product C, computed in f64.
    pub(super) fn product(&self) -> Vec<f64> {
        let dot = |a: &[f32], b: &[f32]| {
            let pairs = a.iter().zip(b);
            pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let rows = self.a.chunks(K);
        rows.flat_map(|a| self.b.chunks(K).map(move |b| dot(a, b)))
            .collect()
    }
}

/// Standard normal numbers (Box and Muller, 1958).
fn normal(seed: u64, count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut one = || {
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        (radius * (TAU * random.f64()).cos()) as f32
    };
    (0..count).map(|_| one()).collect()
}
