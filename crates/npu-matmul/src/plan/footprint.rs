// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that one set of weights takes.

use half::f16;
use rocket_uapi::PAGE_BYTES;

use super::choose::REPLICATED_BYTES_MAX;
use super::options::PlanOptions;
use super::{Plan, WeightPlan};
use crate::dtype::Dtype;
use crate::layout;
use crate::prepared::PROGRAMS_KEPT;

/// Bytes of a page.
pub(super) const PAGE: u64 = PAGE_BYTES as u64;

/// Most bytes of a task's program in its buffer: 864, a word behind it, and the
/// next multiple of 64.
const PROGRAM_BYTES_MAX: u64 = 896;

/// The memory that weights take, on each device and in the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightMemory {
    /// Of each device, bytes of buffers that stay, in whole pages. Exact.
    pub devices: Vec<u64>,
    /// Bytes that the host keeps beside them: scales, and what outlier columns
    /// are made of. Exact, but for the allocator's own.
    pub host: u64,
    /// Bytes of the programs of one job, at most.
    pub job_programs: u64,
    /// Of each device, bytes that a product takes besides and gives back: the
    /// outlier columns of a call. At most, as they depend on the activations.
    pub call_devices: Vec<u64>,
    /// The same of the host.
    pub call_host: u64,
}

impl WeightMemory {
    /// Of weights that are cut so, for products of as many rows as
    /// [`PlanOptions::conditions`] says.
    #[must_use]
    pub fn new(weights: &WeightPlan, options: &PlanOptions) -> Self {
        let used = weights.blocks.iter().map(|b| b.device + 1).max();
        let mut devices = vec![0; weights.devices.max(used.unwrap_or(0))];
        for block in &weights.blocks {
            devices[block.device] += pages(weights.block_bytes(block) as u64);
        }
        Self {
            call_devices: vec![0; devices.len()],
            devices,
            host: 0,
            job_programs: job_programs(weights, options),
            call_host: 0,
        }
    }

    /// Bytes of the programs that stay with the weights, on all devices
    /// together, at most: those of the latest jobs.
    #[must_use]
    pub fn programs(&self) -> u64 {
        self.job_programs.saturating_mul(PROGRAMS_KEPT.get() as u64)
    }

    /// With the scales of `n` output channels in `groups` groups of K.
    pub(crate) fn with_scales(mut self, n: usize, groups: usize) -> Self {
        self.host += (n * groups * size_of::<f32>()) as u64;
        self
    }

    /// With columns that are in FP16 on the devices, cut as `plan` says.
    pub(crate) fn with_columns(mut self, plan: &WeightPlan, options: &PlanOptions) -> Self {
        let beside = Self::new(plan, options);
        for (bytes, more) in self.devices.iter_mut().zip(&beside.devices) {
            *bytes += more;
        }
        // Each has a cache of its own.
        self.job_programs += beside.job_programs;
        // Which columns, and a scale for each channel.
        let which = plan.k * size_of::<usize>();
        self.host += (which + plan.n * size_of::<f32>()) as u64;
        self
    }

    /// With all weights, `n x k`, in the host as FP16, of which each call puts
    /// some columns on the devices.
    pub(crate) fn with_all_columns(mut self, n: usize, k: usize, options: &PlanOptions) -> Self {
        let scales = (n * size_of::<f32>()) as u64;
        let halves = (n * k * size_of::<f16>()) as u64;
        self.host += halves + scales;
        // Those of a call, while they are packed.
        self.call_host += halves + scales + (k * size_of::<usize>()) as u64;
        let (dtype, devices) = (Dtype::Fp16, self.devices.len().max(1));
        let group = dtype.kernel_group();
        let depth = k.next_multiple_of(dtype.k_multiple());
        let of = |groups: usize| layout::weight_bytes(dtype, groups * group, depth) as u64;
        let (whole, share) = (
            of(n.div_ceil(group)),
            of(n.div_ceil(group).div_ceil(devices)),
        );
        let most = if options.replicate == Some(true) || !options.profile.plans.is_empty() {
            whole
        } else {
            // Few of the columns may be copied to each device.
            share.max(whole.min(REPLICATED_BYTES_MAX))
        };
        // Blocks are of 1 GiB at most, and each begins a page.
        let most = pages(most) + PAGE * (most >> 30);
        let programs = options.limits.tasks as u64 * PROGRAM_BYTES_MAX;
        for bytes in &mut self.call_devices {
            *bytes += most + pages(programs).saturating_mul(PROGRAMS_KEPT.get() as u64);
        }
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
            depth in 480..4095_usize,
        ) {
            let options = PlanOptions::default();
            let planned = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
            let memory = WeightMemory::new(&planned, &options);
            // As loaded, where their values tell more.
            let known = PlanOptions {
                int4_depth: Some(depth / 32 * 32),
                replicate: Some(planned.replicas > 1),
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
