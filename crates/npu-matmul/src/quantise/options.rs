// SPDX-License-Identifier: MIT OR Apache-2.0
//! How weights are quantised when they are loaded, and with that how the
//! activations are that they meet.

use super::INT8_MAX;
use super::search::Search;
use crate::dtype::Dtype;
use crate::plan::{PlanOptions, group_k_tile};

/// The largest magnitude of a quantised INT4 element; -8 is not used, as -128
/// is not.
pub const INT4_MAX: f32 = 7.0;

/// The largest magnitude of a quantised activation that is split into two
/// nibbles: [`npu_kernels::nibble::SPLIT_MAX`].
pub const SPLIT_INT8_MAX: f32 = npu_kernels::nibble::SPLIT_MAX as f32;

/// Bits of weights (W) and activations (A).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operands {
    /// INT8 times INT8.
    #[default]
    W8A8,
    /// INT4 times 8 bits, of which +-119 are used: two INT4 products.
    W4A8,
    /// INT4 times INT4.
    W4A4,
}

impl Operands {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 3] = [Self::W8A8, Self::W4A8, Self::W4A4];

    /// What the NPU multiplies.
    #[must_use]
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::W8A8 => Dtype::Int8,
            Self::W4A8 | Self::W4A4 => Dtype::Int4,
        }
    }

    /// The largest magnitude of a weight.
    #[must_use]
    pub const fn weight_max(self) -> f32 {
        match self {
            Self::W8A8 => INT8_MAX,
            Self::W4A8 | Self::W4A4 => INT4_MAX,
        }
    }

    /// The largest magnitude of an activation.
    #[must_use]
    pub const fn activation_max(self) -> f32 {
        match self {
            Self::W8A8 => INT8_MAX,
            Self::W4A8 => SPLIT_INT8_MAX,
            Self::W4A4 => INT4_MAX,
        }
    }

    /// Rows that the NPU multiplies for each row of activations.
    #[must_use]
    pub const fn passes(self) -> usize {
        match self {
            Self::W8A8 | Self::W4A4 => 1,
            Self::W4A8 => 2,
        }
    }

    /// The most products whose sum surely fits into 32 bits.
    #[must_use]
    pub const fn depth_max(self) -> usize {
        i32::MAX as usize / (self.weight_max() as usize * self.activation_max() as usize)
    }
}

/// How weights are quantised: each output channel with scales of its own. The
/// default is [`Operands::W8A8`] with one scale for each channel that clips
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuantiseOptions {
    /// Bits.
    pub operands: Operands,
    /// Neighbouring channels of K that share a scale, in each output channel and in
    /// each row of the activations; a multiple of 32. `None`: all of K.
    ///
    /// A group becomes the depth of a K tile, and must be a legal one. A group of
    /// INT4 weights that is deeper than is exact (see
    /// [`int4_depth`](crate::plan::int4_depth)) becomes several tiles of one depth.
    /// The last group is what remains of K; the only one is all of it, and may be
    /// cut as without groups.
    pub k_group: Option<usize>,
    /// How the scales of the weights are found. Those of the activations clip
    /// nothing.
    pub search: Search,
    /// Whether weights are [rotated](super::rotate) when they are loaded, and
    /// activations in each call.
    pub rotated: bool,
}

impl QuantiseOptions {
    /// Neighbouring channels of `k` that share a scale; at least one.
    #[must_use]
    pub fn group(&self, k: usize) -> usize {
        self.k_group.unwrap_or(k).clamp(1, k.max(1))
    }

    /// The depth of K tiles of weights of `k` channels by an engine that has `options`: forced
    /// for several groups of K, as deep as [`PlanOptions::int4_depth`] allows; `None` leaves it
    /// to the plan.
    pub(crate) fn k_tile(&self, k: usize, options: &PlanOptions) -> Option<usize> {
        let (group, dtype) = (self.k_group?, self.operands.dtype());
        // A single group has the tiles of a scale for each channel.
        let is_forced = group < k || !group.is_multiple_of(dtype.k_multiple());
        is_forced.then(|| group_k_tile(dtype, group, options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_sums_fit() {
        for operands in Operands::ALL {
            let product = operands.weight_max() as i64 * operands.activation_max() as i64;
            let depth = operands.depth_max() as i64;
            assert!(product * depth <= i64::from(i32::MAX));
            assert!(product * (depth + 1) > i64::from(i32::MAX));
        }
    }
}
