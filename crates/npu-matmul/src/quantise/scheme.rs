// SPDX-License-Identifier: MIT OR Apache-2.0
//! How weights are quantised when they are loaded, and with that how the
//! activations are that they meet.

use npu_kernels::nibble::SPLIT_MAX;
use npu_kernels::quantise::row_scale;

use super::rows::INT8_MAX;
use super::search;
use crate::dtype::{CHANNEL_GROUP, Dtype};

/// The largest magnitude of a quantised INT4 element; -8 is not used, as -128
/// is not.
const INT4_MAX: f32 = 7.0;

/// The longest dot product of quantised INT8 operands whose sum surely fits into 32
/// bits, whatever they are.
pub const INT8_K_MAX: usize = i32::MAX as usize / (127 * 127);

/// What floats become: bits of weights (W) and of activations (A), and whether both are
/// [rotated](super::rotate) before, which spreads the outliers of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantisation {
    /// INT8 times INT8: one scale for each output channel and each row of activations.
    W8A8,
    /// The same of rotated operands. It loses less where activations have outliers, and
    /// costs the CPU the rotation of activations in each call.
    W8A8Hadamard,
    /// INT4 times 8 bits of rotated operands: of the four-bit forms that were tried the one that
    /// loses least where activations have outliers (docs/quantisation.md).
    ///
    /// Of the 8 bits +-119 are used, so that two signed nibbles make an activation: two
    /// INT4 products. Each [`Quantisation::group`] of K has scales of its own, those of
    /// weights with the least square error.
    W4A8Hadamard,
}

impl Quantisation {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 3] = [Self::W8A8, Self::W8A8Hadamard, Self::W4A8Hadamard];

    /// What the NPU multiplies.
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

    /// The largest magnitude of a weight.
    #[must_use]
    pub const fn weight_max(self) -> f32 {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => INT8_MAX,
            Self::W4A8Hadamard => INT4_MAX,
        }
    }

    /// The largest magnitude of an activation.
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

    /// Neighbouring channels of `k` that share a scale, in each output channel and in each
    /// row of activations: all of INT8, and of INT4 the fewest that a tile can have. The
    /// last group may have fewer.
    #[must_use]
    pub const fn group(self, k: usize) -> usize {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => k,
            Self::W4A8Hadamard => CHANNEL_GROUP,
        }
    }

    /// The depth of K tiles, where groups of K say it: a tile has one scale.
    pub(crate) const fn k_tile(self) -> Option<usize> {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => None,
            Self::W4A8Hadamard => Some(CHANNEL_GROUP),
        }
    }

    /// The scale of a group of weights.
    #[must_use]
    pub fn weight_scale(self, weights: &[f32]) -> f32 {
        match self {
            Self::W8A8 | Self::W8A8Hadamard => row_scale(weights, INT8_MAX),
            // Of a few levels none is to be wasted on the largest weight alone.
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
