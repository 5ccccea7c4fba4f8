// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans that were the fastest when they were measured. They take the place of
//! predicted ones for exactly what they were measured with.
//!
//! ```text
//!   WeightPlan::new  rows that weights are planned for -> K tile, copies
//!   Plan::new        rows of the product -> rows and channels of a tile, if the
//!                    weights were cut as they were when that was measured
//! ```

use serde::{Deserialize, Serialize};

use super::Profile;
use crate::dtype::{Dtype, Results};
use crate::plan::{
    Conditions, Cut, Plan, PlanError, PlanOptions, PlanSizes, WeightPlan, check_sizes,
    forced_k_tile, k_tile_max,
};

/// Most file descriptors of a plan: as many as Linux lets a process open where
/// nothing else is set.
const DEVICES_MAX: usize = 1024;

/// The fastest plan of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FastestPlan {
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
    /// For INT4 the deepest K tile that is exact with the weights at hand, 384
    /// for any weights ([`int4_depth`](crate::plan::int4_depth)); else `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int4_depth: Option<usize>,
    /// Sizes of the plan that was the fastest.
    pub sizes: PlanSizes,
    /// What it took: from call to return on an NPU, by modelled time on the
    /// software model.
    pub measured_ns: u64,
}

impl FastestPlan {
    /// Of the product of `m` rows with `weights`.
    #[must_use]
    pub fn of(weights: &WeightPlan, m: usize, results: Results, sizes: PlanSizes, ns: u64) -> Self {
        Self {
            dtype: weights.dtype,
            results,
            m,
            k: weights.k,
            n: weights.n,
            devices: weights.devices,
            int4_depth: (weights.dtype == Dtype::Int4).then_some(weights.k_tile_max),
            sizes,
            measured_ns: ns,
        }
    }

    /// Whether both are of the same product.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (sizes, measured_ns) = (other.sizes, other.measured_ns);
        let like = Self {
            sizes,
            measured_ns,
            ..*self
        };
        like == *other
    }

    /// Checks that there is such a plan.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let Self {
            dtype,
            k,
            n,
            devices,
            sizes,
            ..
        } = *self;
        if devices > DEVICES_MAX {
            return Err(PlanError::TooManyDevices {
                devices,
                max: DEVICES_MAX,
            });
        }
        let options = sizes.forced(&PlanOptions {
            int4_depth: self.int4_depth,
            // Their number changes no size, and takes long to choose.
            parts: Some(1),
            ..PlanOptions::default()
        });
        check_sizes(dtype, n, k, devices)?;
        // One deeper than K would be another.
        let k_tile = forced_k_tile(dtype, k, sizes.k_tile, &options)?;
        let cut = Cut::new(dtype, k_tile, sizes.replicas(devices), &options);
        let weights = WeightPlan::cut(dtype, n, k, devices, cut)?;
        let plan = Plan::with_results(&weights, self.m, self.results, &options)?;
        let made = PlanSizes::of(&plan);
        if made != sizes {
            return Err(PlanError::NoSuchChoice {
                choice: sizes,
                nearest: made,
            });
        }
        Ok(())
    }
}

impl Profile {
    /// Adds a plan; one that was there for the same goes.
    ///
    /// # Errors
    /// Why there is no such plan; the profile is as it was.
    pub fn insert(&mut self, plan: FastestPlan) -> Result<(), PlanError> {
        plan.check()?;
        self.plans.retain(|other| !plan.is_like(other));
        self.plans.push(plan);
        Ok(())
    }

    /// The measured plan that `plan`, of which `results` were asked, follows, if it
    /// follows one.
    #[must_use]
    pub fn followed_by(&self, plan: &Plan, results: Results) -> Option<&FastestPlan> {
        // They are measured with operands that are packed and unpacked.
        if plan.row_major != [false; 2] {
            return None;
        }
        let sizes = PlanSizes::of(plan);
        let wanted = FastestPlan::of(&plan.weights, plan.m, results, sizes, 0);
        let found = self.plans.iter().find(|known| known.is_like(&wanted))?;
        (found.sizes == sizes).then_some(found)
    }
}

impl PlanOptions {
    /// What was measured to be best for the product of `wanted`, if that has all that
    /// these options fix.
    fn fastest(&self, wanted: &FastestPlan) -> Option<PlanSizes> {
        let mut plans = self.profile.plans.iter();
        let sizes = plans.find(|known| known.is_like(wanted))?.sizes;
        sizes.obeys(self).then_some(sizes)
    }
}

/// Until a plan is found.
const NO_SIZES: PlanSizes = PlanSizes {
    k_tile: 0,
    replicate: false,
    row_tile: 0,
    n_tile: 0,
};

impl WeightPlan {
    /// As it was measured to be best for as many rows as the options' conditions
    /// say; `None` where that was not measured, or not within the options' limits.
    pub(crate) fn measured(
        dtype: Dtype,
        n: usize,
        k: usize,
        devices: usize,
        options: &PlanOptions,
    ) -> Option<Self> {
        let Conditions { rows, results } = options.conditions;
        let int4 = dtype == Dtype::Int4;
        let sizes = options.fastest(&FastestPlan {
            dtype,
            results,
            m: rows.max(1),
            k,
            n,
            devices,
            int4_depth: int4.then(|| k_tile_max(dtype, options)),
            sizes: NO_SIZES,
            measured_ns: 0,
        })?;
        let cut = Cut::new(dtype, sizes.k_tile, sizes.replicas(devices), options);
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
    pub(crate) fn measured(
        weights: &WeightPlan,
        m: usize,
        results: Results,
        options: &PlanOptions,
    ) -> Option<Self> {
        let sizes = options.fastest(&FastestPlan::of(weights, m, results, NO_SIZES, 0))?;
        let same_cut =
            weights.k_tile == sizes.k_tile && weights.replicas == sizes.replicas(weights.devices);
        let forced = || PlanOptions {
            // What was measured here has run.
            unmeasured_tiles: Some(true),
            ..sizes.forced(options)
        };
        let plan = || Self::predicted(weights, m, results, false, &forced());
        same_cut.then(|| plan().ok()).flatten()
    }
}
