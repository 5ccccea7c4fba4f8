// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of one matmul.

use std::fmt;

use rknpu_regcmd::ProgramOptions;
use serde::Serialize;

use super::cost::task_time_bound_ns;
use super::options::{JobLimits, PlanError, PlanOptions};
use super::rule;
use super::tiles::{check_tile, even_tile, largest};
use super::weights::WeightPlan;
use crate::numbers::dtype::{Dtype, ROW_MULTIPLE};
use crate::numbers::layout;
use crate::profile::PS_PER_SECOND;

/// Most rows of one matmul: more than any memory holds, and few enough that sums of row numbers do
/// not overflow.
const ROWS_MAX: usize = i32::MAX as usize;

/// Fewest rows of a matmul of which the CPU computes jobs: with fewer it reads too many weights for
/// each multiply-add.
const CPU_JOBS_ROWS: usize = 64;

/// NPU and CPU share no jobs if the CPU alone takes so many times as long as the call without it. So
/// the NPU would have computed most of what waits before the CPU has ended a job, and smaller jobs
/// cost a few percent.
const CPU_SLOWNESS_MAX: f64 = 4.0;

/// Steps up to which NPU and CPU share none of a matmul: at least two are in flight before the CPU
/// takes a job. A matmul of a few more may share only in a list with others.
const SHARED_STEPS_MIN: usize = 2;

/// Jobs of a device for each tile of rows that NPU and CPU share, at most. More jobs end at more even
/// times, and each costs a kick and kept programs.
const CPU_JOB_PARTS: usize = 4;

/// Most multiply-adds of a job that the CPU computes: it takes about 23 ms (estimated), in which it
/// does nothing else for the NPU.
const CPU_JOB_MACS: usize = 1 << 31;

/// The division of one matmul into tiles and jobs. It can be serialised but not deserialised, since
/// only plans that were made here are legal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The division of the weights.
    pub weights: WeightPlan,
    /// Options of its register programs.
    pub program: ProgramOptions,
    /// Rows of A and C.
    pub m: usize,
    /// Rows of every tile but the last.
    pub row_tile: usize,
    /// Most output channels of a tile.
    pub n_tile: usize,
    /// Most kernel groups of a job.
    pub groups_per_job: usize,
    /// Most K tiles of a job.
    pub k_tiles_per_job: usize,
    /// Whether the CPU may compute jobs that wait for the NPU. Each job has all K tiles then.
    pub cpu_jobs: bool,
}

impl Plan {
    /// Plans the matmul of `m` rows with these weights.
    ///
    /// # Errors
    /// [`PlanError`]; for a forced tile, the rule that it breaks.
    pub fn new(weights: &WeightPlan, m: usize, options: &PlanOptions) -> Result<Self, PlanError> {
        if m == 0 {
            return Err(PlanError::EmptyDimension { dimension: "M" });
        }
        if m > ROWS_MAX {
            return Err(PlanError::TooManyRows { m, max: ROWS_MAX });
        }
        let (dtype, k_tile) = (weights.dtype, weights.k_tile);
        let rows_max = weights.row_tile_max.max(ROW_MULTIPLE);
        let even_rows = even_tile(m, rows_max, ROW_MULTIPLE);
        let row_tile = options.row_tile.unwrap_or(even_rows);
        let n_max = options.n_max(dtype, k_tile, row_tile.min(m));
        let n_tile = options.n_tile.unwrap_or(n_max);
        check_tile(dtype, row_tile, k_tile, n_tile)?;
        let n = weights.n.next_multiple_of(dtype.kernel_group());
        options.check_measured(dtype, [row_tile.min(m), k_tile, n_tile.min(n)])?;
        let mut plan = Self {
            weights: weights.clone(),
            program: options.profile.choices.program(dtype),
            m,
            row_tile: m.min(row_tile).next_multiple_of(ROW_MULTIPLE),
            n_tile,
            groups_per_job: 1,
            k_tiles_per_job: 1,
            cpu_jobs: false,
        };
        let (size, tile) = ([m, weights.n, weights.k], [plan.row_tile, n_tile, k_tile]);
        let (row_tile, parts, seconds) = rule::parts(dtype, size, tile, weights.devices, options);
        plan.row_tile = row_tile;
        plan.fill_jobs(parts, &options.limits)?;
        let is_wanted = options.cpu_jobs != Some(false) && options.parts.is_none();
        let macs = (m as u64).saturating_mul(weights.n as u64);
        let cpu_ps = options
            .profile
            .int8_ps(macs.saturating_mul(weights.k as u64));
        let is_fast = cpu_ps as f64 / PS_PER_SECOND as f64 <= CPU_SLOWNESS_MAX * seconds;
        if is_wanted && is_fast && dtype == Dtype::Int8 && m >= CPU_JOBS_ROWS {
            plan.share_jobs(&options.limits);
        }
        Ok(plan)
    }

    /// Divides the channels of each device among jobs for NPU and CPU, of whole tiles, and gives each
    /// job all K tiles, so that its results are complete. Does nothing if the limits of a job forbid
    /// that.
    fn share_jobs(&mut self, limits: &JobLimits) {
        let group = self.weights.dtype.kernel_group();
        let widest = self.weights.blocks.iter().map(|b| b.padded).max();
        let (widest, k_tiles) = (widest.unwrap_or(0), self.weights.k_tile_count());
        let n_tiles = widest.div_ceil(self.n_tile);
        let tile_macs = (self.row_tile * self.n_tile.min(widest)).saturating_mul(self.weights.k);
        let tiles = largest(n_tiles.div_ceil(CPU_JOB_PARTS), |tiles| {
            let groups = (tiles * self.n_tile).min(widest) / group;
            tile_macs.saturating_mul(tiles) <= CPU_JOB_MACS
                && self.job_fits(limits, groups, k_tiles)
        });
        let bands = self.m.div_ceil(self.row_tile);
        // Of fewer jobs none would wait.
        if tiles > 0 && bands * n_tiles.div_ceil(tiles) > SHARED_STEPS_MIN {
            self.groups_per_job = (tiles * self.n_tile).min(widest) / group;
            self.k_tiles_per_job = k_tiles;
            self.cpu_jobs = true;
        }
    }

    /// Sets the size of jobs to these parts of N and K, or less if the limits require it. It fills
    /// K first, since adding to the sums of an earlier job reads them again.
    fn fill_jobs(&mut self, parts: [usize; 2], limits: &JobLimits) -> Result<(), PlanError> {
        let [n_parts, k_parts] = parts;
        let group = self.weights.dtype.kernel_group();
        let widest = self.weights.blocks.iter().map(|b| b.padded / group).max();
        let widest = widest.unwrap_or(1);
        let k_tiles = self.weights.k_tile_count().div_ceil(k_parts);

        let depth = largest(k_tiles, |k| self.job_fits(limits, 1, k));
        if depth == 0 {
            return Err(PlanError::JobLimits {
                m: self.row_tile,
                k: self.weights.k_tile,
                n: group,
                limits: *limits,
            });
        }
        self.k_tiles_per_job = depth;
        let width = largest(widest.div_ceil(n_parts), |n| {
            self.job_fits(limits, n, depth)
        });
        self.groups_per_job = self.in_whole_tiles(widest, width);
        Ok(())
    }

    /// Kernel groups of a job, at most `most` of `all`: nearly equal jobs, of whole tiles if at
    /// least one fits. A tile that is smaller than the one before it fetches the rows again.
    fn in_whole_tiles(&self, all: usize, most: usize) -> usize {
        let tile_groups = self.n_tile / self.weights.dtype.kernel_group();
        if (tile_groups..all).contains(&most) {
            even_tile(all, most / tile_groups * tile_groups, tile_groups)
        } else {
            even_tile(all, most, 1)
        }
    }

    /// Whether a job of this many kernel groups and K tiles stays within the limits. If it does
    /// not, no larger job does.
    fn job_fits(&self, limits: &JobLimits, groups: usize, k_tiles: usize) -> bool {
        let dtype = self.weights.dtype;
        let (m, k) = (self.row_tile, self.weights.k_tile);
        let n = groups * dtype.kernel_group();
        let time = task_time_bound_ns(dtype, m, k, n.min(self.n_tile));
        // Two counts times a size can exceed 64 bits.
        let k_tiles = k_tiles as u128;
        let tasks = k_tiles * n.div_ceil(self.n_tile) as u128;
        let a_bytes = k_tiles * layout::activation_bytes(dtype, m, k) as u128;
        let c_bytes = k_tiles * layout::output_bytes(dtype, m, n) as u128;
        tasks <= limits.tasks as u128
            && tasks * u128::from(time) <= limits.time.as_nanos()
            && a_bytes.max(c_bytes) <= limits.buffer_bytes as u128
    }

    /// Most tasks of a job.
    pub(crate) fn job_tasks_at_most(&self) -> usize {
        let width = self.groups_per_job * self.weights.dtype.kernel_group();
        self.k_tiles_per_job * width.div_ceil(self.n_tile)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let w = &self.weights;
        let steps = self.steps();
        write!(
            f,
            "{} M={} K={} N={}: tiles of {} x {} x {}, {} K tile(s), {} block(s) of weights, \
             {} step(s) of up to {} channels, {} K tile(s) per job",
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
            self.groups_per_job * w.dtype.kernel_group(),
            self.k_tiles_per_job,
        )
    }
}
