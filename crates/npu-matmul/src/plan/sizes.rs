// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plan chose, in four numbers.

use serde::{Deserialize, Serialize};

use super::{Plan, PlanOptions};

/// The sizes that a plan chose. Any other ones that are legal give the same
/// integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSizes {
    /// Depth of a K tile.
    pub k_tile: usize,
    /// Whether each device gets a copy of the weights and a share of the rows.
    pub replicate: bool,
    /// Rows of a tile.
    pub row_tile: usize,
    /// Output channels of a tile, at most.
    pub n_tile: usize,
}

impl PlanSizes {
    /// What `plan` chose.
    #[must_use]
    pub const fn of(plan: &Plan) -> Self {
        Self {
            k_tile: plan.weights.k_tile,
            replicate: plan.weights.replicas > 1,
            row_tile: plan.row_tile,
            n_tile: plan.n_tile,
        }
    }

    /// These options, with nothing left to choose.
    #[must_use]
    pub fn forced(&self, options: &PlanOptions) -> PlanOptions {
        PlanOptions {
            k_tile: Some(self.k_tile),
            replicate: Some(self.replicate),
            row_tile: Some(self.row_tile),
            n_tile: Some(self.n_tile),
            ..options.clone()
        }
    }

    /// Whether it has all that `options` fix.
    pub(crate) fn obeys(&self, options: &PlanOptions) -> bool {
        let obeys = |forced: Option<usize>, size| forced.is_none_or(|forced| forced == size);
        obeys(options.k_tile, self.k_tile)
            && obeys(options.row_tile, self.row_tile)
            && obeys(options.n_tile, self.n_tile)
            && options
                .replicate
                .is_none_or(|forced| forced == self.replicate)
    }

    /// Copies of the weights on `devices`.
    pub(crate) const fn replicas(&self, devices: usize) -> usize {
        if self.replicate { devices } else { 1 }
    }
}
