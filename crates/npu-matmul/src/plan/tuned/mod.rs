// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choices that were measured, which take the place of predicted ones.
//!
//! A plan is the least modelled time; a board may see it otherwise. A
//! [`TunedPlans`] has the sizes that were the fastest for some products on some
//! device, as a file ([`file`](self)'s format is in docs/matmul.md). Plans whose
//! [`PlanOptions::tuned`] has it take its sizes where all that they depend on is
//! the same, and what the timing model says elsewhere.
//!
//! ```text
//!   WeightPlan::new  rows that weights are planned for -> K tile, copies
//!   Plan::new        rows of the product -> rows and channels of a tile, if the
//!                    weights were cut as they were when that was measured
//! ```

mod conditions;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use conditions::{DeviceKind, OtherConditions, TunedFor};
pub use file::{FILE_BYTES_MAX, TunedError};

use super::options::{PlanError, PlanOptions};
use super::weights::{Cut, WeightPlan, check_sizes, forced_k_tile, k_tile_max};
use super::{Conditions, Plan};
use crate::dtype::{Dtype, Results};

/// Most file descriptors of an entry: as many as Linux lets a process open
/// where nothing else is set.
const DEVICES_MAX: usize = 1024;

/// All that a choice depends on, but for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunedKey {
    /// Precision of the operands.
    pub dtype: Dtype,
    /// What is asked of the NPU.
    pub results: Results,
    /// Rows of A.
    pub m: usize,
    /// Channels.
    pub k: usize,
    /// Output channels.
    pub n: usize,
    /// File descriptors.
    pub devices: usize,
    /// For INT4 the deepest K tile that is exact with the weights at hand, 480
    /// for any weights ([`int4_depth`](super::int4_depth)); else `None`.
    pub int4_depth: Option<usize>,
}

impl TunedKey {
    /// What the choice of a plan of `m` rows with these weights depends on.
    #[must_use]
    pub fn of(weights: &WeightPlan, m: usize, results: Results) -> Self {
        let int4 = weights.dtype == Dtype::Int4;
        Self {
            dtype: weights.dtype,
            results,
            m,
            k: weights.k,
            n: weights.n,
            devices: weights.devices,
            int4_depth: int4.then_some(weights.k_tile_max),
        }
    }
}

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
            tuned: None,
            ..options.clone()
        }
    }

    /// Whether it has all that `options` fix.
    fn obeys(&self, options: &PlanOptions) -> bool {
        let obeys = |forced: Option<usize>, size| forced.is_none_or(|forced| forced == size);
        obeys(options.k_tile, self.k_tile)
            && obeys(options.row_tile, self.row_tile)
            && obeys(options.n_tile, self.n_tile)
            && options
                .replicate
                .is_none_or(|forced| forced == self.replicate)
    }

    /// Copies of the weights on `devices`.
    const fn replicas(&self, devices: usize) -> usize {
        if self.replicate { devices } else { 1 }
    }
}

/// A choice, and what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunedPlan {
    /// For what.
    pub key: TunedKey,
    /// The sizes of the fastest plan.
    pub choice: PlanSizes,
    /// What the timing model says it takes: of the NPU, and of the CPU for sums.
    pub predicted_ns: u64,
    /// What it took: from call to return on an NPU, by the software model's
    /// clock on the software model.
    pub measured_ns: u64,
}

impl TunedPlan {
    /// Checks that there is such a plan.
    fn check(&self) -> Result<(), PlanError> {
        let TunedKey {
            dtype,
            results,
            m,
            k,
            n,
            devices,
            int4_depth,
        } = self.key;
        if devices > DEVICES_MAX {
            return Err(PlanError::TooManyDevices {
                devices,
                max: DEVICES_MAX,
            });
        }
        let options = self.choice.forced(&PlanOptions {
            int4_depth,
            ..PlanOptions::default()
        });
        check_sizes(dtype, n, k, devices)?;
        // One deeper than K would be another.
        let k_tile = forced_k_tile(dtype, k, self.choice.k_tile, &options)?;
        let replicas = self.choice.replicas(devices);
        let cut = Cut::new(dtype, k_tile, replicas, &options);
        let weights = WeightPlan::cut(dtype, n, k, devices, cut)?;
        let plan = Plan::with_results(&weights, m, results, &options)?;
        let made = PlanSizes::of(&plan);
        if made != self.choice {
            return Err(PlanError::NoSuchChoice {
                choice: self.choice,
                nearest: made,
            });
        }
        Ok(())
    }
}

/// Measured choices of one device under one set of conditions.
#[derive(Clone, PartialEq, Eq)]
pub struct TunedPlans {
    conditions: TunedFor,
    plans: BTreeMap<TunedKey, TunedPlan>,
}

impl TunedPlans {
    /// A list without plans.
    #[must_use]
    pub const fn new(conditions: TunedFor) -> Self {
        Self {
            conditions,
            plans: BTreeMap::new(),
        }
    }

    /// What they were measured under.
    #[must_use]
    pub const fn conditions(&self) -> &TunedFor {
        &self.conditions
    }

    /// Adds a choice; one that was there for the same goes.
    ///
    /// # Errors
    /// Why there is no such plan; the table is as it was.
    pub fn insert(&mut self, plan: TunedPlan) -> Result<(), PlanError> {
        plan.check()?;
        self.plans.insert(plan.key, plan);
        Ok(())
    }

    /// All choices, in the order of what they are for.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &TunedPlan> {
        self.plans.values()
    }

    /// The choice for exactly this.
    #[must_use]
    pub fn get(&self, key: &TunedKey) -> Option<&TunedPlan> {
        self.plans.get(key)
    }

    /// The choice for the product of `plan`, of which `results` were asked, if
    /// that is how it is planned.
    #[must_use]
    pub fn followed_by(&self, plan: &Plan, results: Results) -> Option<&TunedPlan> {
        // Tables are measured with operands that are packed and unpacked.
        if plan.row_major != [false; 2] {
            return None;
        }
        let found = self.get(&TunedKey::of(&plan.weights, plan.m, results))?;
        (found.choice == PlanSizes::of(plan)).then_some(found)
    }
}

impl fmt::Debug for TunedPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunedPlans")
            .field("conditions", &self.conditions)
            .field("plans", &self.plans.len())
            .finish()
    }
}

impl PlanOptions {
    /// What was measured to be best, if that has all that these options fix.
    fn measured(&self, key: &TunedKey) -> Option<PlanSizes> {
        let choice = self.tuned.as_ref()?.get(key)?.choice;
        choice.obeys(self).then_some(choice)
    }
}

impl WeightPlan {
    /// As it was measured to be best for as many rows as the options' conditions
    /// say; `None` where that was not measured, or not within the options' limits.
    pub(super) fn measured(
        dtype: Dtype,
        n: usize,
        k: usize,
        devices: usize,
        options: &PlanOptions,
    ) -> Option<Self> {
        options.tuned.as_ref()?;
        let Conditions { rows, results, .. } = options.conditions;
        let int4 = dtype == Dtype::Int4;
        let choice = options.measured(&TunedKey {
            dtype,
            results,
            m: rows.max(1),
            k,
            n,
            devices,
            int4_depth: int4.then(|| k_tile_max(dtype, options)),
        })?;
        let replicas = choice.replicas(devices);
        let cut = Cut::new(dtype, choice.k_tile, replicas, options);
        let weights = Self::cut(dtype, n, k, devices, cut).ok()?;
        // Else weights would be loaded for which no product has a plan.
        Plan::measured(&weights, rows.max(1), results, options)
            .is_some()
            .then_some(weights)
    }
}

impl Plan {
    /// As it was measured to be best; `None` where it was not, or with weights
    /// that were cut otherwise, or not within the options' limits.
    pub(super) fn measured(
        weights: &WeightPlan,
        m: usize,
        results: Results,
        options: &PlanOptions,
    ) -> Option<Self> {
        options.tuned.as_ref()?;
        let choice = options.measured(&TunedKey::of(weights, m, results))?;
        let same_cut =
            weights.k_tile == choice.k_tile && weights.replicas == choice.replicas(weights.devices);
        let forced = || choice.forced(options);
        same_cut
            .then(|| Self::with_results(weights, m, results, &forced()).ok())
            .flatten()
    }
}
