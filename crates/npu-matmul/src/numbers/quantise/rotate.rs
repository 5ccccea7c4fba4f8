// SPDX-License-Identifier: MIT OR Apache-2.0
//! Randomised Hadamard rotation: spreads outliers of one channel over all channels.
//!
//! R = H D, where D is a diagonal of random signs and H an orthonormal Hadamard transform in
//! blocks. (R a) . (R b) = a . b, so rotating both operands does not change the matmul. Weights are
//! rotated once, when they are loaded; activations in each call. The random signs prevent the
//! transform from concentrating similar values: a constant row would become one outlier.

use npu_kernels::hadamard::Hadamard;

/// Seed of the engine's rotations. Any value works; a fixed one makes results reproducible.
pub const SEED: u64 = 1;

/// Stages of the transform for rows of `k` elements. A rotation costs one addition for each element
/// and stage.
#[must_use]
pub fn stages(k: usize) -> u32 {
    Hadamard::dividing(k).map_or(0, |transform| transform.block().ilog2())
}

/// A rotation for rows of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    signs: Vec<f32>,
    transform: Hadamard,
}

impl Rotation {
    /// Creates the rotation for rows of `k` elements from `seed`, with the largest block size that
    /// divides K. `None` if K is 0. If K is odd, blocks have one element and nothing is mixed.
    #[must_use]
    pub fn new(k: usize, seed: u64) -> Option<Self> {
        let transform = Hadamard::dividing(k)?;
        let mut state = seed;
        let signs = (0..k)
            .map(|_| {
                if next(&mut state) >> 63 == 0 {
                    1.0
                } else {
                    -1.0
                }
            })
            .collect();
        Some(Self { signs, transform })
    }

    /// Rotates each row of a row-major matrix with K columns. Elements behind the last whole row
    /// are unchanged.
    pub fn apply(&self, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(self.signs.len()) {
            for (x, sign) in row.iter_mut().zip(&self.signs) {
                *x *= sign;
            }
            self.transform.transform(row);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): advances the state and mixes it.
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dot(a: &[f32], b: &[f32]) -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    }

    fn norm(a: &[f32]) -> f64 {
        dot(a, a).sqrt()
    }

    fn pair() -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
        let row = |k| prop::collection::vec(-100.0..100.0_f32, k);
        prop_oneof![1..40_usize, Just(96), Just(256), Just(4096), Just(12288)]
            .prop_flat_map(move |k| (row(k), row(k)))
    }

    proptest! {
        #![proptest_config(test_support::cases(48))]

        /// Each of log2(n) stages and the scaling round by at most 2^-24 of an element; the scale
        /// itself is off by as much. Orthonormal stages preserve the errors. So |R'a - Ra| <= e |a|
        /// with e = (log2(n) + 2) * 2^-24, and the dot product changes by at most (2 e + e^2) |a|
        /// |b|.
        #[test]
        fn the_product_stays((a, b) in pair(), seed in any::<u64>()) {
            let rotation = Rotation::new(a.len(), seed).unwrap();
            let (mut ra, mut rb) = (a.clone(), b.clone());
            rotation.apply(&mut ra);
            rotation.apply(&mut rb);
            let e = (f64::from(rotation.transform.block().ilog2()) + 2.0) * 2_f64.powi(-24);
            let bound = (2.0 * e + e * e) * norm(&a) * norm(&b);
            // The f64 sums round too, far below this.
            let bound = bound * 1.001;
            prop_assert!((dot(&ra, &rb) - dot(&a, &b)).abs() <= bound);
        }
    }

    #[test]
    fn a_constant_row_is_no_outlier() {
        let mut row = vec![1.0; 1024];
        Rotation::new(1024, 3).unwrap().apply(&mut row);
        let largest = row.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        // Without random signs it would be 32.
        assert!(largest < 6.0, "{largest}");
    }

    #[test]
    fn sizes() {
        assert!(Rotation::new(0, 1).is_none());
        let rotation = Rotation::new(3, 1).unwrap();
        let mut rows = [1.0, 2.0, 3.0, 4.0];
        rotation.apply(&mut rows);
        assert_eq!(rotation.transform.block(), 1);
        assert_eq!(rows.map(f32::abs), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(rows[3], 4.0);
    }
}
