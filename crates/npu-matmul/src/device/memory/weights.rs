// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory use of one set of weights.

use rocket_uapi::PAGE_BYTES;

use crate::device::weight_pool::shared_bytes_max;
use crate::numbers::dtype::Dtype;
use crate::plan::{Plan, PlanOptions, WeightPlan};

/// Bytes of a page.
pub(super) const PAGE: u64 = PAGE_BYTES as u64;

/// Upper bound for a task's program in its buffer, in bytes: 1008 in form B, one word behind it,
/// rounded up to a multiple of 64.
const PROGRAM_BYTES_MAX: u64 = 1024;

/// Upper bound for the jobs of one set of weights whose programs are kept for the next matmul:
/// those of a prompt in several batches, and of the last shorter batch, on a handful of devices.
const JOBS_KEPT: u64 = 64;

/// Memory of weights on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceMemory {
    /// Bytes in whole pages, exact.
    pub(super) bytes: u64,
    /// Bytes of blocks that share buffer objects.
    pub(super) shared_bytes: u64,
    /// Blocks with a separate buffer object.
    pub(super) buffers: u64,
}

impl DeviceMemory {
    /// Upper bound for the shared buffer objects, of `chunk` bytes each.
    pub(super) const fn chunks(&self, chunk: usize) -> u64 {
        match self.shared_bytes {
            0 => 0,
            // A full chunk has less free space than the largest block.
            bytes => bytes / (chunk - shared_bytes_max(chunk)) as u64 + 1,
        }
    }

    /// Combines two values field by field.
    pub(super) fn combined(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: with(self.bytes, other.bytes),
            shared_bytes: with(self.shared_bytes, other.shared_bytes),
            buffers: with(self.buffers, other.buffers),
        }
    }
}

/// Memory of weights on each device.
pub(super) struct WeightMemory {
    pub(super) devices: Vec<DeviceMemory>,
    /// Upper bound for the programs of one job, in bytes.
    pub(super) job_programs: u64,
    /// Upper bound for the scales and signs in the host, in bytes.
    pub(super) host: u64,
}

impl WeightMemory {
    /// Memory of weights with this plan, for matmuls of as many rows as [`PlanOptions::batch_rows`]
    /// says, in shared buffer objects of `chunk` bytes and others.
    pub(super) fn new(weights: &WeightPlan, chunk: usize, options: &PlanOptions) -> Self {
        let used = weights.blocks.iter().map(|b| b.device + 1).max();
        let mut devices = vec![DeviceMemory::default(); weights.devices.max(used.unwrap_or(0))];
        for block in &weights.blocks {
            let (device, block_bytes) = (&mut devices[block.device], weights.block_bytes(block));
            let bytes = pages(block_bytes as u64);
            device.bytes += bytes;
            if block_bytes <= shared_bytes_max(chunk) {
                device.shared_bytes += bytes;
            } else {
                device.buffers += 1;
            }
        }
        Self {
            devices,
            job_programs: job_programs(weights, options),
            host: host_bytes(weights),
        }
    }

    /// Upper bound for the programs of the latest jobs, which are kept, in bytes on all devices
    /// together.
    pub(super) fn programs(&self) -> u64 {
        self.job_programs.saturating_mul(JOBS_KEPT)
    }
}

/// Upper bound for what weights keep in the host, in bytes: a scale or factor for each output
/// channel, and the signs of a rotation.
fn host_bytes(weights: &WeightPlan) -> u64 {
    let signs = match weights.dtype {
        Dtype::Int8 => weights.k,
        Dtype::Fp16 | Dtype::Int4 => 0,
    };
    (weights.n as u64)
        .saturating_add(signs as u64)
        .saturating_mul(size_of::<f32>() as u64)
}

/// Upper bound for the programs of one job, in bytes.
fn job_programs(weights: &WeightPlan, options: &PlanOptions) -> u64 {
    // A job is largest if the plan has one part.
    let whole = PlanOptions {
        parts: Some(1),
        ..options.clone()
    };
    let tasks = Plan::new(weights, options.batch_rows, &whole)
        .map_or(options.limits.tasks, |plan| plan.job_tasks_at_most());
    // Fewer rows may get other tiles. INT4 weights are planned again when their values are known,
    // with deeper tiles of fewer rows. Both fill CBUF like these, except for rounding.
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
    use crate::device::weight_pool::CHUNK_BYTES;
    use crate::plan::emit;

    /// Bytes of a job's programs as `ProgramBo` stores them.
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

        /// As many numbers as `Engine::load` makes.
        #[test]
        fn each_scale_and_sign_is_counted(
            (n, k) in (1..3000_usize, 1..3000_usize),
        ) {
            let weights = WeightPlan::new(Dtype::Int8, n, k, 3, &PlanOptions::default()).unwrap();
            prop_assert_eq!(host_bytes(&weights), 4 * (n + k) as u64);
        }

        #[test]
        fn programs_of_no_job_are_larger(
            dtype in prop::sample::select(&Dtype::ALL[..]),
            (m, n, k) in (1..=512_usize, 1..6000_usize, 1..6000_usize),
            devices in 1..4_usize,
            // Up to the depth for weights of magnitude 1 on average.
            depth in 384..4095_usize,
        ) {
            let options = PlanOptions::default();
            let planned = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
            let memory = WeightMemory::new(&planned, CHUNK_BYTES, &options);
            // Loaded weights: their values may allow deeper tiles.
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
