// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether weights fit, before anything is allocated.

use std::collections::BTreeMap;

use super::shares::MemoryShares;
use super::weights::{DeviceMemory, PAGE, WeightMemory};
use crate::device::buffers::{IDLE_BUFFERS_MAX, PROGRAMS_KEPT, REUSE_WASTE};
use crate::plan::{
    BUFFERS_OF_A_JOB, DEVICE_BYTES_MAX, PlanOptions, WAVE_JOBS, WAVES_IN_FLIGHT, WeightPlan,
};

/// Mappings allowed to a process if the kernel does not say (Linux, `DEFAULT_MAX_MAP_COUNT`).
const MAPPINGS_MAX: u64 = 65_530;

/// Mappings allowed for weights and matmuls; the rest is left to the program.
fn mappings_limit() -> u64 {
    let file = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    file.trim().parse().unwrap_or(MAPPINGS_MAX) / 4 * 3
}

/// Upper bound for the buffers of one file descriptor besides weights and programs, in bytes, while
/// matmuls or batches run one after another: activations and results of all steps in flight, and
/// `idle` bytes of buffers kept for later steps.
fn buffer_bytes(options: &PlanOptions, idle: usize) -> u64 {
    // Activations and results.
    let each = BUFFERS_OF_A_JOB as u64;
    // Each buffer of a job is limited; the jobs of a wave together stay within the same limit.
    let largest = (options.limits.buffer_bytes as u64).saturating_mul(each);
    // Each job adds a page, and slack behind its activations.
    let slack = options.profile.choices.slack_bytes.value as u64;
    let page_and_slack = (each + 1) * PAGE + slack;
    let wave = largest.saturating_add(WAVE_JOBS as u64 * page_and_slack);
    let wave = wave.saturating_add(wave / REUSE_WASTE as u64);
    // And the page at address 0.
    (wave.saturating_mul(WAVES_IN_FLIGHT as u64)).saturating_add(idle as u64 + PAGE)
}

/// Tracks weights that shall be on some devices at the same time, with the memory that they and
/// their matmuls need.
///
/// Three limits apply. Each file descriptor addresses 4 GiB. All of them share the board's RAM:
/// device memory is ordinary RAM. Each buffer object is a mapping of the process, whose number is
/// limited (`vm.max_map_count`); it needs no file descriptor.
///
/// Memory of loaded weights is exact, in whole pages. The rest are upper bounds for one [`Engine::run`] at a time whose matmuls have
/// different weights: scales in the host, programs (for as many rows as [`PlanOptions::batch_rows`] says), activations
/// and results of all steps in flight, buffers kept for later, and unused space of buffer objects.
/// Not counted are the caller's matrices, their converted copies in the host, and temporary memory
/// of loading.
///
/// [`Engine::run`]: crate::Engine::run
///
/// ```
/// use npu_matmul::memory::{MemoryPlan, MemoryShares};
/// use npu_matmul::plan::WeightPlan;
/// use npu_matmul::{Dtype, PlanOptions};
///
/// let options = PlanOptions::default();
/// let mut memory = MemoryPlan::new(3, MemoryShares::for_weights(2 << 30), &options);
/// let layer = WeightPlan::new(Dtype::Int8, 14336, 4096, 3, &options)?;
/// let mut layers = 0;
/// while memory.add(&layer).is_ok() {
///     layers += 1;
/// }
/// assert_eq!(layers, 36);
/// # Ok::<(), npu_matmul::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Weights on each device.
    per_device: Vec<DeviceMemory>,
    /// Scales in the host.
    host: u64,
    /// Kept programs, which may be of jobs on any device.
    programs: u64,
    /// Programs of one job.
    job_programs: Largest,
    options: PlanOptions,
    shares: MemoryShares,
    mappings_limit: u64,
}

/// A multiset of numbers that returns its largest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Largest(BTreeMap<u64, usize>);

impl Largest {
    fn add(&mut self, number: u64) {
        *self.0.entry(number).or_default() += 1;
    }

    fn remove(&mut self, number: u64) {
        if let Some(count) = self.0.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&number);
            }
        }
    }

    fn get(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(number, _)| *number)
    }
}

/// Why weights do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DoesNotFit {
    /// A file descriptor has too few addresses.
    #[error(
        "file descriptor {device} would need up to {bytes} bytes, working buffers included, but \
         can address {limit}; use more file descriptors"
    )]
    Addresses {
        /// Index into the device pool.
        device: usize,
        /// Bytes that it would need.
        bytes: u64,
        /// Bytes that the device can address.
        limit: u64,
    },
    /// The memory limit is exceeded.
    #[error(
        "the weights would take up to {bytes} bytes, but the limit is {limit}; load fewer weights, or \
         weights of fewer bits"
    )]
    Memory {
        /// Bytes that would be needed.
        bytes: u64,
        /// Bytes that the options allow.
        limit: u64,
    },
    /// The buffer objects exceed the mappings allowed to the process.
    #[error(
        "the buffers would need up to {mappings} mappings, but this process has only {limit} for \
         them; raise vm.max_map_count"
    )]
    Mappings {
        /// Mappings that would be needed.
        mappings: u64,
        /// Mappings allowed for weights and matmuls.
        limit: u64,
    },
    /// The weights were planned for more devices.
    #[error("the weights are planned for device {device}, but there are only {devices} devices")]
    Devices {
        /// Index of the missing device.
        device: usize,
        /// Number of devices.
        devices: usize,
    },
}

impl MemoryPlan {
    /// An empty plan for this many devices and these shares of their memory.
    #[must_use]
    pub fn new(devices: usize, shares: MemoryShares, options: &PlanOptions) -> Self {
        Self {
            per_device: vec![DeviceMemory::default(); devices],
            host: 0,
            programs: 0,
            job_programs: Largest::default(),
            options: options.clone(),
            shares,
            mappings_limit: mappings_limit(),
        }
    }

    /// Adds weights if they fit.
    ///
    /// # Errors
    /// [`DoesNotFit`]; the plan is unchanged then.
    pub fn add(&mut self, weights: &WeightPlan) -> Result<(), DoesNotFit> {
        let weights = &self.memory_of(weights);
        let devices = self.per_device.len();
        let beyond = weights.devices.iter().skip(devices);
        if let Some(device) = beyond.map(|of| of.bytes).position(|bytes| bytes > 0) {
            let device = devices + device;
            return Err(DoesNotFit::Devices { device, devices });
        }
        for (held, more) in self.per_device.iter_mut().zip(&weights.devices) {
            *held = held.combined(*more, u64::saturating_add);
        }
        self.host = self.host.saturating_add(weights.host);
        self.programs = self.programs.saturating_add(weights.programs());
        self.job_programs.add(weights.job_programs);
        let fits = self.check();
        if fits.is_err() {
            self.remove_memory(weights);
        }
        fits
    }

    fn check(&self) -> Result<(), DoesNotFit> {
        for device in 0..self.per_device.len() {
            let (bytes, limit) = (self.device_at_most(device), DEVICE_BYTES_MAX);
            if bytes > limit {
                return Err(DoesNotFit::Addresses {
                    device,
                    bytes,
                    limit,
                });
            }
        }
        let devices = self.per_device.iter();
        let unused: u64 = devices.map(|of| self.unused(of)).sum();
        let bytes = [unused, self.host].into_iter();
        let bytes = bytes.fold(self.total(), u64::saturating_add);
        let limit = self.shares.weights();
        if bytes > limit {
            return Err(DoesNotFit::Memory { bytes, limit });
        }
        let (mappings, limit) = (self.mappings_at_most(), self.mappings_limit);
        if mappings > limit {
            return Err(DoesNotFit::Mappings { mappings, limit });
        }
        Ok(())
    }

    /// Removes weights that were added.
    pub fn remove(&mut self, weights: &WeightPlan) {
        self.remove_memory(&self.memory_of(weights));
    }

    fn remove_memory(&mut self, weights: &WeightMemory) {
        for (held, less) in self.per_device.iter_mut().zip(&weights.devices) {
            *held = held.combined(*less, u64::saturating_sub);
        }
        self.host = self.host.saturating_sub(weights.host);
        self.programs = self.programs.saturating_sub(weights.programs());
        self.job_programs.remove(weights.job_programs);
    }

    /// Bytes of weights on each device.
    pub fn per_device(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.per_device.iter().map(|of| of.bytes)
    }

    /// Upper bound for unused space in the buffer objects of weights on a device, in bytes.
    fn unused(&self, of: &DeviceMemory) -> u64 {
        let slack = self.options.profile.choices.slack_bytes.value as u64;
        let chunk = self.chunk();
        let in_chunks = (of.chunks(chunk) * chunk as u64).saturating_sub(of.shared_bytes);
        in_chunks + (of.chunks(chunk) + of.buffers).saturating_mul(slack)
    }

    /// Bytes of a buffer object that small blocks share.
    fn chunk(&self) -> usize {
        self.shares.chunk(self.per_device.len())
    }

    fn memory_of(&self, weights: &WeightPlan) -> WeightMemory {
        WeightMemory::new(weights, self.chunk(), &self.options)
    }

    /// Upper bound for the mappings of all buffer objects.
    #[must_use]
    pub fn mappings_at_most(&self) -> u64 {
        let devices = self.per_device.len();
        let in_flight = WAVES_IN_FLIGHT * WAVE_JOBS * (BUFFERS_OF_A_JOB + 1) + IDLE_BUFFERS_MAX;
        let working = (PROGRAMS_KEPT + devices * in_flight) as u64;
        let buffers = self
            .per_device
            .iter()
            .map(|of| of.chunks(self.chunk()) + of.buffers);
        buffers.sum::<u64>() + working
    }

    /// Upper bound for the programs that are kept, in bytes.
    fn programs(&self) -> u64 {
        self.programs.min(self.shares.programs() as u64)
    }

    /// Bytes of weights on all devices.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.per_device().sum()
    }

    /// Upper bound for a device's memory at any time, in bytes: weights, and working memory of a
    /// matmul or batch.
    #[must_use]
    pub fn device_at_most(&self, device: usize) -> u64 {
        let of = self.per_device.get(device).copied().unwrap_or_default();
        of.bytes
            .saturating_add(self.unused(&of))
            .saturating_add(self.programs())
            .saturating_add(self.working())
    }

    /// Upper bound for a device's working memory, in bytes: buffers, and programs that only jobs in
    /// flight use.
    fn working(&self) -> u64 {
        let in_flight = (WAVES_IN_FLIGHT * WAVE_JOBS) as u64;
        let programs = self.job_programs.get().saturating_mul(in_flight);
        buffer_bytes(&self.options, self.shares.idle(self.per_device.len()))
            .saturating_add(programs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::numbers::dtype::Dtype;
    use crate::plan::attention::call::AttentionShape;
    use crate::plan::attention::plan::AttentionPlan;

    fn weights(n: usize, k: usize, devices: usize) -> WeightPlan {
        WeightPlan::new(Dtype::Int8, n, k, devices, &PlanOptions::default()).unwrap()
    }

    #[test]
    fn each_limit_is_named_and_a_refusal_changes_nothing() {
        let options = PlanOptions::default();
        let layer = weights(14336, 4096, 1);
        let mut memory = MemoryPlan::new(1, MemoryShares::of(u64::MAX), &options);
        let error = loop {
            let before = memory.clone();
            if let Err(error) = memory.add(&layer) {
                assert_eq!(memory, before);
                break error;
            }
        };
        // 3.5 GiB in layers of 56 MiB, without their programs.
        let layers = memory.total() / layer.device_bytes();
        assert!((55..=63).contains(&layers), "{layers}");
        let room = DEVICE_BYTES_MAX - memory.device_at_most(0);
        assert!(room < layer.device_bytes() + (30 << 20), "{room}");
        assert!(matches!(error, DoesNotFit::Addresses { device: 0, .. }));

        let mut memory = MemoryPlan::new(3, MemoryShares::for_weights(100 << 20), &options);
        let layer = weights(14336, 4096, 3);
        memory.add(&layer).unwrap();
        let refused = memory.add(&layer).unwrap_err();
        assert!(matches!(refused, DoesNotFit::Memory { .. }));
        assert_eq!(memory.total(), layer.device_bytes());

        let mut memory = MemoryPlan::new(2, MemoryShares::of(u64::MAX), &options);
        let refused = memory.add(&layer).unwrap_err();
        let (device, devices) = (2, 2);
        assert_eq!(refused, DoesNotFit::Devices { device, devices });
    }

    /// K and V of two heads; queries, scores, probabilities and results of three tiles.
    #[test]
    fn attention_takes_no_more_than_matmuls() {
        let options = PlanOptions::uncalibrated(600_000_000);
        for keys in [512, 8192, 32_768, 131_072] {
            for head_dim in [64, 128] {
                let sizes = AttentionShape {
                    keys,
                    head_dim,
                    value_dim: head_dim,
                    ..AttentionShape::LLAMA
                };
                let plan = AttentionPlan::new(&sizes, &options).unwrap();
                let blocks: Vec<_> = (0..plan.blocks()).collect();
                let m = plan.heads * plan.rows;
                let jobs = [plan.score_job(0, m, &blocks), plan.value_job(0, m, &blocks)];
                let tile: usize = jobs
                    .iter()
                    .map(|job| job.band.activation_bytes + job.output_bytes)
                    .sum();
                let bytes = (2 * plan.kv_bytes() + 3 * tile) as u64;
                let reused = bytes + bytes / REUSE_WASTE as u64;
                assert!(reused <= buffer_bytes(&options, 0), "{keys} keys: {reused}");
            }
        }
    }

    /// A scale for each output channel, and a sign of the rotation for each input channel.
    #[test]
    fn scales_in_the_host_are_within_the_limit() {
        let options = PlanOptions::default();
        let layer = weights(4096, 4096, 1);
        let (bytes, scales) = (layer.device_bytes(), 2 * 4096 * 4);
        let fits = |limit| {
            let mut memory = MemoryPlan::new(1, MemoryShares::for_weights(limit), &options);
            memory.add(&layer).is_ok()
        };
        let slack = options.profile.choices.slack_bytes.value as u64;
        assert!(!fits(bytes + slack + scales - 1) && fits(bytes + slack + scales));
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn sums_are_those_of_the_weights_in_pages(
            sizes in prop::collection::vec((1..3000_usize, 1..3000_usize), 1..6),
            devices in 1..6_usize,
        ) {
            let options = PlanOptions::default();
            let mut memory = MemoryPlan::new(devices, MemoryShares::of(u64::MAX), &options);
            let mut bytes = 0;
            let mut blocks = 0;
            let mut added = Vec::new();
            for (n, k) in sizes {
                let weights = weights(n, k, devices);
                memory.add(&weights).unwrap();
                bytes += weights.device_bytes();
                blocks += weights.blocks.len() as u64;
                added.push(weights);
            }
            prop_assert_eq!(memory.total() % PAGE, 0);
            prop_assert!((bytes..bytes + blocks * PAGE).contains(&memory.total()));
            for weights in &added {
                memory.remove(weights);
            }
            prop_assert_eq!(memory, MemoryPlan::new(devices, MemoryShares::of(u64::MAX), &options));
        }
    }
}
