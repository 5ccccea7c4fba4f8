// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tiles, in which order, on which device: data, and nothing but.
//!
//! A [`WeightPlan`] cuts B when it is loaded; a [`Plan`] adds M and cuts the
//! product into [`Step`]s. A step is at most one job for each device, of a
//! range of rows, a range of K tiles and a range of output channels. Its jobs run
//! at the same time; the steps follow one another. Devices share N.
//!
//! ```text
//!             N: device 0  |  device 1  |  device 2        (blocks of weights)
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!   rows    | job | job |  | job | job |  | job | job |    step 0, step 1
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!   M       | job | job |  | job | job |  | job | job |    step 2, step 3
//!           +-----+-----+--+-----+-----+--+-----+-----+
//!
//!   in a job: row tiles x K tiles x N tiles, a task each; one task writes one
//!   partial result, and the CPU adds those of different K tiles up.
//! ```
//!
//! A product that fits into one job per device is cut all the same where that lets the
//! CPU pack and unpack while the NPU computes (`parts`). Nothing here touches a device,
//! and the same arguments give the same plan.

mod caches;
mod call;
mod choose;
mod cost;
mod depth;
mod footprint;
mod host;
mod memory;
mod options;
mod parts;
mod predict;
mod stationary;
mod step;
#[cfg(test)]
mod tests;
mod waves;
mod weights;

use std::fmt;

pub use call::CallTime;
pub use choose::{Candidate, Conditions, candidates, cheapest};
pub use depth::{int4_depth, int4_depth_within};
pub use footprint::{DeviceMemory, WeightMemory};
pub use host::{HostCores, KernelCost, UnpackTo};
pub use memory::{DoesNotFit, MemoryPlan};
pub use options::{JobLimits, PlanError, PlanOptions};
pub use predict::Prediction;
pub use step::{ActivationTile, Band, JobPlan, Stationary, Step, TaskPlan};
pub(crate) use waves::{WaveBuilder, WaveSize};
pub use weights::{INT4_K_TILE_MAX, KTile, WeightBlock, WeightPlan};
pub(crate) use weights::{N_TILE_MAX, ROW_TILE_MAX, max_rows};

use rknpu_regcmd::{MatmulType, ProgramOptions};
use serde::{Serialize, Serializer};

use crate::dtype::{ROW_MULTIPLE, Results};
use crate::layout;
pub(crate) use cost::task_time_bound_ns;
use weights::{check_depth, check_tile};

/// Most rows of one product: far beyond any memory, and small enough that no
/// sum of row numbers overflows.
const ROWS_MAX: usize = i32::MAX as usize;

/// How one product is computed. What it says can be written down by serde; it is
/// not read back, since only plans that were made here are legal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// How the weights were cut.
    pub weights: WeightPlan,
    /// What its tasks compute.
    #[serde(serialize_with = "type_name")]
    pub ty: MatmulType,
    /// How its programs are made.
    pub program: ProgramOptions,
    /// Rows of A and C.
    pub m: usize,
    /// Rows of every tile but the last.
    pub row_tile: usize,
    /// Most output channels of a tile.
    pub n_tile: usize,
    /// Row tiles of a job.
    pub row_tiles_per_job: usize,
    /// Kernel groups of a job, at most.
    pub groups_per_job: usize,
    /// K tiles of a job.
    pub k_tiles_per_job: usize,
    /// Which operand its tasks leave in CBUF for the next.
    pub stationary: Stationary,
}

impl Plan {
    /// Plans the product of `m` rows with these weights.
    ///
    /// # Errors
    /// [`PlanError`], in particular the rule that a forced tile breaks.
    pub fn new(weights: &WeightPlan, m: usize, options: &PlanOptions) -> Result<Self, PlanError> {
        Self::with_results(weights, m, Results::Sums, options)
    }

    /// The same with results of choice, as far as the NPU can make them:
    /// [`Plan::ty`] tells.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_results(
        weights: &WeightPlan,
        m: usize,
        results: Results,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        if m == 0 {
            return Err(PlanError::EmptyDimension { dimension: "M" });
        }
        if m > ROWS_MAX {
            return Err(PlanError::TooManyRows { m, max: ROWS_MAX });
        }
        let (dtype, k_tile) = (weights.dtype, weights.k_tile);
        let row_tile = match options.row_tile {
            Some(0) => return Err(PlanError::EmptyTile),
            Some(forced) => forced,
            None => even_tile(m, weights.row_tile_max.max(ROW_MULTIPLE), ROW_MULTIPLE),
        };
        let n_tile = match options.n_tile {
            Some(0) => return Err(PlanError::EmptyTile),
            Some(forced) => forced,
            None => options.n_max(dtype, k_tile, row_tile.min(m)),
        };
        check_depth(weights.k_tile, weights.k_tile_max)?;
        check_tile(dtype, row_tile, k_tile, n_tile)?;
        let n = weights.n.next_multiple_of(dtype.kernel_group());
        options.check_measured(dtype, [row_tile.min(m), k_tile, n_tile.min(n)])?;
        let results = if weights.k_tile_count() > 1 {
            Results::Sums
        } else {
            results
        };
        let mut plan = Self {
            weights: weights.clone(),
            ty: dtype.matmul_type_of(results),
            program: options.profile.choices.program(dtype),
            m,
            row_tile: m.min(row_tile).next_multiple_of(ROW_MULTIPLE),
            n_tile,
            row_tiles_per_job: 1,
            groups_per_job: 1,
            k_tiles_per_job: 1,
            stationary: Stationary::Activations,
        };
        plan.fill_jobs(&options.limits)?;
        Ok(plan.keeping_operands(options).in_parts(options))
    }

    /// Makes jobs as large as the limits allow: first all of K, so that each
    /// result is read once, then N, then M.
    fn fill_jobs(&mut self, limits: &JobLimits) -> Result<(), PlanError> {
        let group = self.weights.dtype.kernel_group();
        let widest = self.weights.blocks.iter().map(|b| b.padded / group).max();
        let widest = widest.unwrap_or(1);
        let k_tiles = self.weights.k_tile_count();
        let row_tiles = self.row_tile_count();

        let depth = largest(k_tiles, |k| self.job_fits(limits, 1, 1, k));
        if depth == 0 {
            return Err(PlanError::JobLimits {
                m: self.row_tile,
                k: self.weights.k_tile,
                n: group,
                limits: *limits,
            });
        }
        self.k_tiles_per_job = depth;
        let width = largest(widest, |n| self.job_fits(limits, 1, n, depth));
        self.groups_per_job = even_tile(widest, width, 1);
        let height = |m: usize| self.job_fits(limits, m, self.groups_per_job, depth);
        self.row_tiles_per_job = even_tile(row_tiles, largest(row_tiles, height), 1);
        Ok(())
    }

    /// Whether a job of this many row tiles, kernel groups and K tiles stays
    /// within the limits; grows with each of them.
    fn job_fits(
        &self,
        limits: &JobLimits,
        row_tiles: usize,
        groups: usize,
        k_tiles: usize,
    ) -> bool {
        let dtype = self.weights.dtype;
        let (m, k) = (self.row_tile, self.weights.k_tile);
        let n = groups * dtype.kernel_group();
        let time = task_time_bound_ns(dtype, m, k, n.min(self.n_tile));
        // Wide enough for the product of any three counts and a size.
        let repeated = row_tiles as u128 * k_tiles as u128;
        let tasks = repeated * n.div_ceil(self.n_tile) as u128;
        let a_bytes = repeated * layout::activation_bytes(dtype, m, k) as u128;
        let plane = row_tiles as u128 * layout::output_bytes(self.ty, m, n) as u128;
        let c_bytes = plane * k_tiles as u128;
        tasks <= limits.tasks as u128
            && tasks * u128::from(time) <= limits.time.as_nanos()
            && a_bytes.max(c_bytes) <= limits.buffer_bytes as u128
    }

    /// Most tasks of a job.
    fn job_tasks_at_most(&self) -> usize {
        let width = self.groups_per_job * self.weights.dtype.kernel_group();
        let (rows, k_tiles) = (self.row_tiles_per_job, self.k_tiles_per_job);
        rows * k_tiles * width.div_ceil(self.n_tile)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let w = &self.weights;
        let steps = self.steps();
        write!(
            f,
            "{} M={} K={} N={}: tiles of {} x {} x {}, {} K tile(s), {} block(s) of weights, \
             {} step(s) of up to {} row tile(s), {} channels, {} K tile(s) a device",
            w.dtype,
            self.m,
            w.k,
            w.n,
            self.row_tile,
            w.k_tile,
            self.n_tile,
            w.k_tile_count(),
            w.blocks.len(),
            steps.len(),
            self.row_tiles_per_job,
            self.groups_per_job * w.dtype.kernel_group(),
            self.k_tiles_per_job,
        )
    }
}

/// The name of what tasks compute.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn type_name<S: Serializer>(ty: &MatmulType, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{ty:?}"))
}

/// The largest `x` in `1..=max` for which `holds`, where `holds` is true up to
/// some point and false from there on; 0 if it never is.
fn largest(max: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut yes, mut no) = (0, max + 1);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if holds(middle) {
            yes = middle
        } else {
            no = middle
        }
    }
    yes
}

/// The tile size, a multiple of `unit` and at most `max`, that cuts `total`
/// into as few tiles as `max` does, but even ones.
fn even_tile(total: usize, max: usize, unit: usize) -> usize {
    let max = max.max(1);
    total
        .div_ceil(total.div_ceil(max))
        .next_multiple_of(unit)
        .min(max)
}

/// Sizes beyond 32 bits become one that every rule refuses.
fn to_u32(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
