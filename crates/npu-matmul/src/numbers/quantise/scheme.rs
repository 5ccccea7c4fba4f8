// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantisation schemes of weights and of their activations.

use npu_kernels::nibble::SPLIT_MAX;
use npu_kernels::quantise::row_scale;

use super::rows::INT8_MAX;
use super::search;
use crate::numbers::dtype::{CHANNEL_GROUP, Dtype};

/// Largest magnitude of a quantised INT4 element. -8 is not used, like -128 in 8 bits.
const INT4_MAX: f32 = 7.0;

/// Longest dot product of quantised INT8 operands whose sum fits in 32 bits for all values.
pub const INT8_K_MAX: usize = i32::MAX as usize / (127 * 127);

/// A quantisation scheme: bits of weights (W) and activations (A), and whether both are
/// [rotated](super::rotate) first, which spreads outliers of the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantisation {
    /// INT8 x INT8, with one scale for each output channel and each row of activations.
    W8A8,
    /// As `W8A8` with rotated operands. More accurate if activations have outliers. The CPU rotates
    /// the activations in each call.
    W8A8Hadamard,
    /// INT4 x 8 bits with rotated operands: the most accurate 4-bit scheme of those that were
    /// tried, if activations have outliers (docs/quality.md).
    ///
    /// Activations use +-119, so that two signed nibbles hold one; a matmul takes two INT4 passes.
    /// Each [`Quantisation::group`] of K has separate scales; those of weights minimise the square
    /// error.
    W4A8Hadamard,
}

impl Quantisation {
    /// All schemes, for tables and tests.
    pub const ALL: [Self; 3] = [Self::W8A8, Self::W8A8Hadamard, Self::W4A8Hadamard];

    /// Precision of the matmul on the NPU.
    #[must_use]
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => Dtype::Int8,
            Self::W4A8Hadamard => Dtype::Int4,
        }
    }

    /// Whether both operands are rotated.
    #[must_use]
    pub const fn is_rotated(self) -> bool {
        matches!(self, Self::W8A8Hadamard | Self::W4A8Hadamard)
    }

    /// Largest magnitude of a weight.
    #[must_use]
    pub const fn weight_max(self) -> f32 {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => INT8_MAX,
            Self::W4A8Hadamard => INT4_MAX,
        }
    }

    /// Largest magnitude of an activation.
    #[must_use]
    pub const fn activation_max(self) -> f32 {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => INT8_MAX,
            Self::W4A8Hadamard => SPLIT_MAX as f32,
        }
    }

    /// Rows that the NPU multiplies for each row of activations.
    #[must_use]
    pub const fn passes(self) -> usize {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => 1,
            Self::W4A8Hadamard => 2,
        }
    }

    /// Number of adjacent channels, out of `k`, that share a scale in each output channel and each
    /// row of activations. All of K for INT8; the smallest K tile for INT4. The last group may be
    /// smaller.
    #[must_use]
    pub const fn group(self, k: usize) -> usize {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => k,
            Self::W4A8Hadamard => CHANNEL_GROUP,
        }
    }

    /// Depth of K tiles if the scheme fixes it: a tile has one scale.
    pub(crate) const fn k_tile(self) -> Option<usize> {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => None,
            Self::W4A8Hadamard => Some(CHANNEL_GROUP),
        }
    }

    /// Scale of a group of weights.
    #[must_use]
    pub fn weight_scale(self, weights: &[f32]) -> f32 {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => row_scale(weights, INT8_MAX),
            // With so few levels, the largest weight alone should not set the scale.
            Self::W4A8Hadamard => search::least_square_scale(weights, INT4_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_sums_fit() {
        for quantisation in Quantisation::ALL {
            let product = quantisation.weight_max() as i64 * quantisation.activation_max() as i64;
            let depth = quantisation.group(INT8_K_MAX) as i64;
            assert!(product * depth <= i64::from(i32::MAX));
        }
        assert!(127 * 127 * (INT8_K_MAX as i64 + 1) > i64::from(i32::MAX));
    }
}
