// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a set of weights fits, answered before anything is allocated.

use std::collections::BTreeMap;
use std::fmt;

use super::weights::{DeviceMemory, PAGE, WeightMemory};
use crate::arena::{CHUNK_BYTES, SHARED_BYTES_MAX};
use crate::buffers::{IDLE_BUFFERS_MAX, IDLE_BYTES_MAX};
use crate::plan::{
    BUFFERS_OF_A_JOB, DEVICE_BYTES_MAX, PlanOptions, WAVE_JOBS, WAVES_IN_FLIGHT, WeightPlan,
};
use crate::prepared::{PROGRAM_BYTES_KEPT, PROGRAMS_KEPT};

/// Mappings that a process may have, where the kernel does not say (Linux,
/// `DEFAULT_MAX_MAP_COUNT`).
const MAPPINGS_MAX: u64 = 65_530;

/// Mappings that weights and products may be: the program has some, too.
fn mappings_limit() -> u64 {
    let file = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    file.trim().parse().unwrap_or(MAPPINGS_MAX) / 4 * 3
}

/// Most bytes that one file descriptor has in buffers besides weights and
/// programs, while one product or batch after the other is computed: the
/// activations and results of all steps in flight, and the buffers that are kept for
/// later steps.
fn buffer_bytes(options: &PlanOptions) -> u64 {
    // A job has activations and results.
    let each = BUFFERS_OF_A_JOB as u64;
    // A job has the limit's bytes in each of its buffers; waves of several have no
    // more together.
    let largest = (options.limits.buffer_bytes as u64).saturating_mul(each);
    // And each job has a page, and slack behind its activations.
    let choices = &options.profile.choices;
    let page_and_slack = (each + 1) * PAGE + choices.slack_bytes.value as u64;
    let wave = largest.saturating_add(WAVE_JOBS as u64 * page_and_slack);
    let guard = if choices.guard_page.value { PAGE } else { 0 };
    (wave.saturating_mul(WAVES_IN_FLIGHT as u64)).saturating_add(IDLE_BYTES_MAX as u64 + guard)
}

/// Weights that are to be on some devices at the same time, and the memory that
/// they and products with them take there.
///
/// Each file descriptor addresses 4 GiB, and all of them together what the board
/// has: device memory is ordinary RAM. Each buffer object is a mapping of the process,
/// whose number is limited (`vm.max_map_count`); none needs a descriptor.
///
/// What weights keep is counted exactly, in whole pages: their blocks, and scales in
/// the host. The rest are upper bounds, for one [`Engine::run`] at a time whose
/// products have different weights: programs (of as many rows as
/// [`PlanOptions::conditions`] says), activations and results of all steps in
/// flight, buffers that are kept for later, and what no block has of buffer objects.
/// Not counted are the caller's matrices
/// and what they become in the host, and what loading takes for a while.
///
/// [`Engine::run`]: crate::Engine::run
///
/// ```
/// use npu_matmul::memory::MemoryPlan;
/// use npu_matmul::plan::WeightPlan;
/// use npu_matmul::{Dtype, PlanOptions};
///
/// let options = PlanOptions::default();
/// let mut memory = MemoryPlan::for_weights(3, 2 << 30, &options);
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
    host: u64,
    /// Of all programs that are kept, which may be of jobs on any device.
    programs: u64,
    /// Of the programs of a job.
    job_programs: Largest,
    options: PlanOptions,
    limit: Limit,
    mappings_limit: u64,
}

/// What may take how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Weights(u64),
    Everything(u64),
}

/// Numbers that come and go, for the largest of them.
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
    /// One file descriptor has too few addresses left.
    #[error(
        "file descriptor {device} would need up to {bytes} bytes, working buffers included, but \
         can address {limit}; use more file descriptors"
    )]
    Addresses {
        /// Index into the device pool.
        device: usize,
        /// What it would hold.
        bytes: u64,
        /// Bytes that the device can address.
        limit: u64,
    },
    /// All together take more memory than they may.
    #[error(
        "the weights, with working memory if the limit includes it, would take {bytes} bytes, but \
         the limit is {limit}; load fewer weights, or weights of fewer bits"
    )]
    Memory {
        /// What they would take.
        bytes: u64,
        /// Bytes that the options allow.
        limit: u64,
    },
    /// All buffer objects together are more mappings than the process may have.
    #[error(
        "the buffers would need up to {mappings} mappings, but this process may have {limit} for \
         them; raise vm.max_map_count"
    )]
    Mappings {
        /// What they would be.
        mappings: u64,
        /// Mappings that they may be.
        limit: u64,
    },
    /// The weights were planned for more devices.
    #[error("the weights are planned for device {device}, but there are only {devices} devices")]
    Devices {
        /// Index that they name.
        device: usize,
        /// Devices that there are.
        devices: usize,
    },
}

impl MemoryPlan {
    /// No weights yet, on so many devices. They and everything that products
    /// with them need may take `total` bytes of RAM, as far as it is counted:
    /// less than the buffers of a product, and nothing fits.
    #[must_use]
    pub fn new(devices: usize, total: u64, options: &PlanOptions) -> Self {
        Self::limited(devices, Limit::Everything(total), options)
    }

    /// No weights yet, on so many devices, which alone may take `total` bytes in
    /// all; what products need comes on top.
    #[must_use]
    pub fn for_weights(devices: usize, total: u64, options: &PlanOptions) -> Self {
        Self::limited(devices, Limit::Weights(total), options)
    }

    fn limited(devices: usize, limit: Limit, options: &PlanOptions) -> Self {
        Self {
            per_device: vec![DeviceMemory::default(); devices],
            host: 0,
            programs: 0,
            job_programs: Largest::default(),
            options: options.clone(),
            limit,
            mappings_limit: mappings_limit(),
        }
    }

    /// Adds weights if they fit.
    ///
    /// # Errors
    /// [`DoesNotFit`]; then nothing is added.
    pub fn add(&mut self, weights: &WeightPlan) -> Result<(), DoesNotFit> {
        self.add_memory(&WeightMemory::new(weights, &self.options))
    }

    /// Adds weights that take this memory, if they fit.
    ///
    /// # Errors
    /// [`DoesNotFit`]; then nothing is added.
    pub fn add_memory(&mut self, weights: &WeightMemory) -> Result<(), DoesNotFit> {
        let devices = self.per_device.len();
        let beyond = weights.devices.iter().skip(devices);
        if let Some(device) = beyond.map(|of| of.bytes).position(|bytes| bytes > 0) {
            let device = devices + device;
            return Err(DoesNotFit::Devices { device, devices });
        }
        self.count(weights);
        let fits = self.check();
        if fits.is_err() {
            self.remove_memory(weights);
        }
        fits
    }

    fn count(&mut self, weights: &WeightMemory) {
        for (held, more) in self.per_device.iter_mut().zip(&weights.devices) {
            *held = held.combined(*more, u64::saturating_add);
        }
        self.host = self.host.saturating_add(weights.host);
        self.programs = self.programs.saturating_add(weights.programs());
        self.job_programs.add(weights.job_programs);
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
        let (bytes, limit) = match self.limit {
            Limit::Weights(limit) => (self.total(), limit),
            Limit::Everything(limit) => (self.ram_at_most(), limit),
        };
        if bytes > limit {
            return Err(DoesNotFit::Memory { bytes, limit });
        }
        let (mappings, limit) = (self.mappings_at_most(), self.mappings_limit);
        if mappings > limit {
            return Err(DoesNotFit::Mappings { mappings, limit });
        }
        Ok(())
    }

    /// Takes away weights that were added.
    pub fn remove(&mut self, weights: &WeightPlan) {
        self.remove_memory(&WeightMemory::new(weights, &self.options));
    }

    /// Takes away weights that were added with this memory.
    pub fn remove_memory(&mut self, weights: &WeightMemory) {
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

    /// Bytes of weights that a device can address beside what products with those
    /// that were added need.
    #[must_use]
    pub fn device_limit(&self) -> u64 {
        let devices = 0..self.per_device.len();
        let beside = devices.map(|device| self.device_at_most(device) - self.bytes(device));
        DEVICE_BYTES_MAX.saturating_sub(beside.max().unwrap_or(0))
    }

    /// Bytes of weights on a device.
    fn bytes(&self, device: usize) -> u64 {
        self.per_device.get(device).map_or(0, |of| of.bytes)
    }

    /// Buffer objects on a device that several blocks share, at most.
    fn chunks(&self, device: usize) -> u64 {
        match self.per_device.get(device).map_or(0, |of| of.shared_bytes) {
            0 => 0,
            // What has no room for one block more lacks less than the largest.
            bytes => bytes / (CHUNK_BYTES - SHARED_BYTES_MAX) as u64 + 1,
        }
    }

    /// Bytes of buffer objects of weights on a device that no block has, at most.
    fn unused(&self, device: usize) -> u64 {
        let of = self.per_device.get(device).copied().unwrap_or_default();
        let slack = self.options.profile.choices.slack_bytes.value as u64;
        let chunks = self.chunks(device);
        let in_chunks = (chunks * CHUNK_BYTES as u64).saturating_sub(of.shared_bytes);
        in_chunks + (chunks + of.buffers).saturating_mul(slack)
    }

    /// Mappings of the process that all buffer objects are, at most.
    #[must_use]
    pub fn mappings_at_most(&self) -> u64 {
        let devices = self.per_device.len();
        let in_flight = WAVES_IN_FLIGHT * WAVE_JOBS * (BUFFERS_OF_A_JOB + 1) + IDLE_BUFFERS_MAX;
        let working = (PROGRAMS_KEPT + devices * in_flight) as u64;
        let buffers = |device: usize| self.chunks(device) + self.per_device[device].buffers;
        (0..devices).map(buffers).sum::<u64>() + working
    }

    /// Bytes of programs that are kept, at most.
    fn programs(&self) -> u64 {
        self.programs.min(PROGRAM_BYTES_KEPT)
    }

    /// Bytes of weights on all devices, and of what the host keeps beside them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.per_device().sum::<u64>() + self.host
    }

    /// Most bytes that a device has at any time: of weights, and of what a
    /// product or batch needs besides.
    #[must_use]
    pub fn device_at_most(&self, device: usize) -> u64 {
        self.bytes(device)
            .saturating_add(self.unused(device))
            .saturating_add(self.programs())
            .saturating_add(self.working())
    }

    /// Most bytes of RAM that all devices and the host's copies take at any
    /// time.
    #[must_use]
    pub fn ram_at_most(&self) -> u64 {
        let devices = self.per_device.len();
        let working = self.working().saturating_mul(devices as u64);
        let unused: u64 = (0..devices).map(|device| self.unused(device)).sum();
        self.total()
            .saturating_add(unused)
            .saturating_add(self.programs())
            .saturating_add(working)
    }

    /// Most bytes of a device that are of no weights: buffers, and programs that
    /// only jobs in flight still have.
    fn working(&self) -> u64 {
        let in_flight = (WAVES_IN_FLIGHT * WAVE_JOBS) as u64;
        let programs = self.job_programs.get().saturating_mul(in_flight);
        buffer_bytes(&self.options).saturating_add(programs)
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Limit::Weights(limit) | Limit::Everything(limit)) = self.limit;
        write!(
            f,
            "weights of {} bytes on {} device(s), at most {} with working memory; limit: \
             {limit} bytes",
            self.total(),
            self.per_device.len(),
            self.ram_at_most(),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::Dtype;

    fn weights(n: usize, k: usize, devices: usize) -> WeightPlan {
        WeightPlan::new(Dtype::Int8, n, k, devices, &PlanOptions::default()).unwrap()
    }

    #[test]
    fn each_limit_is_named_and_a_refusal_changes_nothing() {
        let options = PlanOptions::default();
        let layer = weights(14336, 4096, 1);
        let mut memory = MemoryPlan::new(1, u64::MAX, &options);
        let error = loop {
            let before = memory.clone();
            if let Err(error) = memory.add(&layer) {
                assert_eq!(memory, before);
                break error;
            }
        };
        // 3.5 GiB in layers of 56 MiB, less their programs.
        let layers = memory.total() / layer.device_bytes();
        assert!((55..=63).contains(&layers), "{layers}");
        let room = memory.device_limit() - memory.total();
        assert!(room < layer.device_bytes() + (30 << 20), "{room}");
        assert!(matches!(error, DoesNotFit::Addresses { device: 0, .. }));

        let mut memory = MemoryPlan::for_weights(3, 100 << 20, &options);
        let layer = weights(14336, 4096, 3);
        memory.add(&layer).unwrap();
        let refused = memory.add(&layer).unwrap_err();
        assert!(matches!(refused, DoesNotFit::Memory { .. }));
        assert_eq!(memory.total(), layer.device_bytes());

        let mut memory = MemoryPlan::new(2, u64::MAX, &options);
        let refused = memory.add(&layer).unwrap_err();
        let (device, devices) = (2, 2);
        assert_eq!(refused, DoesNotFit::Devices { device, devices });
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn sums_are_those_of_the_weights_in_pages(
            sizes in prop::collection::vec((1..3000_usize, 1..3000_usize), 1..6),
            devices in 1..6_usize,
        ) {
            let options = PlanOptions::default();
            let mut memory = MemoryPlan::new(devices, u64::MAX, &options);
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
            prop_assert_eq!(memory, MemoryPlan::new(devices, u64::MAX, &options));
        }
    }
}
