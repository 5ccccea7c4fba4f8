// SPDX-License-Identifier: MIT OR Apache-2.0
//! How weights are quantised when they are loaded, and with that how the
//! activations are that they meet.

use super::INT8_MAX;
use super::rotate::Rotation;
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

    /// For messages.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::W8A8 => "quantised int8",
            Self::W4A8 => "quantised int4 for 8-bit activations",
            Self::W4A4 => "quantised int4",
        }
    }
}

/// What has a scale of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// All weights together; of the activations each row.
    PerTensor,
    /// Each output channel; of the activations each row.
    #[default]
    PerChannel,
    /// So many neighbouring channels of K, in each output channel and in each
    /// row of the activations; a multiple of 32. It becomes the depth of a K
    /// tile, and must be a legal one. A group of INT4 weights that is deeper than
    /// is exact (see [`int4_depth`](crate::plan::int4_depth)) becomes several
    /// tiles of one depth. The last group is what remains of K; the only one is
    /// all of it, and may be cut as for [`Scheme::PerChannel`].
    PerKGroup(usize),
}

impl Scheme {
    /// Neighbouring channels of `k` that share a scale; at least one.
    pub(crate) fn group(self, k: usize) -> usize {
        match self {
            Self::PerTensor | Self::PerChannel => k.max(1),
            Self::PerKGroup(group) => group.clamp(1, k.max(1)),
        }
    }
}

/// Columns of K that are kept out of the quantised product: both operands have
/// them in FP16, and that product is added.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Outliers {
    /// All columns are quantised.
    #[default]
    Quantised,
    /// These, in any order; found by [`outlier_columns`](super::outlier_columns)
    /// in calibration data, or in the weights. They do not bear on the scales
    /// of the weights.
    Columns(Vec<usize>),
    /// Those that [`outlier_columns`](super::outlier_columns) finds in the
    /// activations of each call, by this factor. The host keeps all weights in
    /// FP16 besides, and loads the columns anew for each call that has any.
    Above(f32),
}

/// How weights are quantised. The default is [`Operands::W8A8`] with a scale
/// for each channel that clips nothing.
#[derive(Clone, Debug)]
pub struct QuantiseOptions {
    /// Bits.
    pub operands: Operands,
    /// What has a scale.
    pub scheme: Scheme,
    /// How the scales of the weights are found. Those of the activations clip
    /// nothing.
    pub search: Search,
    /// Rotates the weights when they are loaded, and the activations of each
    /// call. Outlier columns are not rotated.
    pub rotation: Option<Rotation>,
    /// What is not quantised.
    pub outliers: Outliers,
}

impl Default for QuantiseOptions {
    fn default() -> Self {
        Self {
            operands: Operands::default(),
            scheme: Scheme::default(),
            search: Search::AbsMax,
            rotation: None,
            outliers: Outliers::default(),
        }
    }
}

impl QuantiseOptions {
    /// With which options an engine that has `options` plans such weights, of
    /// [`Operands::dtype`] and `k` channels: a forced K tile for several
    /// groups of K, as deep as [`PlanOptions::int4_depth`] allows; for activations
    /// that are split twice the rows, of which two are one sum for the CPU.
    /// Outlier columns are planned apart.
    #[must_use]
    pub fn plan_options(&self, k: usize, options: &PlanOptions) -> PlanOptions {
        let mut plan = options.clone();
        let passes = self.operands.passes();
        plan.conditions.rows = plan.conditions.rows.saturating_mul(passes);
        if let Scheme::PerKGroup(group) = self.scheme
            // A single group has the tiles of a scale for each channel.
            && (group < k || !group.is_multiple_of(self.operands.dtype().k_multiple()))
        {
            plan.k_tile = Some(group_k_tile(self.operands.dtype(), group, options));
        }
        plan
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
