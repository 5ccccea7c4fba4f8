// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that one set of weights takes.

use rocket_uapi::PAGE_BYTES;

use crate::arena::SHARED_BYTES_MAX;
use crate::plan::{Plan, PlanOptions, WeightPlan};

/// Bytes of a page.
pub(super) const PAGE: u64 = PAGE_BYTES as u64;

/// Most bytes of a task's program in its buffer: 1008 in form B, a word behind it, and
/// the next multiple of 64.
const PROGRAM_BYTES_MAX: u64 = 1024;

/// Jobs of one set of weights whose programs are kept for the next product, at most:
/// those of a prompt in several batches, and of the last shorter one, on a handful of
/// devices.
const JOBS_KEPT: u64 = 64;

/// What weights take of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes, in whole pages. Exact.
    pub bytes: u64,
    /// Those of blocks that share buffer objects.
    pub(super) shared_bytes: u64,
    /// Blocks that have a buffer object of their own.
    pub(super) buffers: u64,
}

impl DeviceMemory {
    /// Both, field by field.
    pub(super) fn combined(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: with(self.bytes, other.bytes),
            shared_bytes: with(self.shared_bytes, other.shared_bytes),
            buffers: with(self.buffers, other.buffers),
        }
    }
}

/// The memory that weights take, on each device and in the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightMemory {
    /// Of each device.
    pub devices: Vec<DeviceMemory>,
    /// Bytes that the host keeps beside them: scales. Exact, but for the allocator's own.
    pub host: u64,
    /// Bytes of the programs of one job, at most.
    pub job_programs: u64,
}

impl WeightMemory {
    /// Of weights that are cut so, for products of as many rows as
    /// [`PlanOptions::conditions`] says.
    #[must_use]
    pub fn new(weights: &WeightPlan, options: &PlanOptions) -> Self {
        let used = weights.blocks.iter().map(|b| b.device + 1).max();
        let mut devices = vec![DeviceMemory::default(); weights.devices.max(used.unwrap_or(0))];
        for block in &weights.blocks {
            let (device, block_bytes) = (&mut devices[block.device], weights.block_bytes(block));
            let bytes = pages(block_bytes as u64);
            device.bytes += bytes;
            if block_bytes <= SHARED_BYTES_MAX {
                device.shared_bytes += bytes;
            } else {
                device.buffers += 1;
            }
        }
        Self {
            devices,
            host: 0,
            job_programs: job_programs(weights, options),
        }
    }

    /// Bytes of the programs that are kept for products with the weights, on all
    /// devices together, at most: those of the latest jobs.
    #[must_use]
    pub fn programs(&self) -> u64 {
        self.job_programs.saturating_mul(JOBS_KEPT)
    }

    /// With the scales of `n` output channels in `groups` groups of K.
    pub(crate) fn with_scales(mut self, n: usize, groups: usize) -> Self {
        self.host += (n * groups * size_of::<f32>()) as u64;
        self
    }
}

/// Bytes of the programs of a job, at most.
fn job_programs(weights: &WeightPlan, options: &PlanOptions) -> u64 {
    // Whatever the parts, no job is larger than where there is one.
    let whole = PlanOptions {
        parts: Some(1),
        ..options.clone()
    };
    let tasks = Plan::new(weights, options.conditions.rows, &whole)
        .map_or(options.limits.tasks, |plan| plan.job_tasks_at_most());
    // Fewer rows may be cut otherwise, and INT4 weights are cut anew when their
    // values are known, into deeper tiles of fewer rows: tiles that fill CBUF as
    // these do, but for what rounding leaves.
    let tasks = (2 * tasks).min(options.limits.tasks);
    pages(tasks as u64 * PROGRAM_BYTES_MAX)
}

pub(super) const fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::Dtype;
    use crate::emit;

    /// Bytes of a job's programs as `ProgramBo` puts them.
    fn emitted(job: &crate::plan::JobPlan) -> u64 {
        let programs = emit::programs(job).unwrap();
        let each = programs.iter().map(|program| {
            let words = program.words().len() as u64 + 1;
            (words * 8).next_multiple_of(64)
        });
        pages(each.sum())
    }

    proptest! {
        #![proptest_config(test_support::cases(48))]

        #[test]
        fn programs_of_no_job_are_larger(
            dtype in prop::sample::select(&Dtype::ALL[..]),
            (m, n, k) in (1..=512_usize, 1..6000_usize, 1..6000_usize),
            devices in 1..4_usize,
            // As far as weights of one unit on average allow.
            depth in 384..4095_usize,
        ) {
            let options = PlanOptions::default();
            let planned = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
            let memory = WeightMemory::new(&planned, &options);
            // As loaded, where their values tell more.
            let known = PlanOptions {
                int4_depth: Some(depth / 32 * 32),
                ..options
            };
            let weights = WeightPlan::new(dtype, n, k, devices, &known).unwrap();
            let plan = Plan::new(&weights, m, &known).unwrap();
            for job in plan.steps().flat_map(|step| step.jobs) {
                prop_assert!(emitted(&job) <= memory.job_programs, "{}", plan);
            }
        }
    }
}
