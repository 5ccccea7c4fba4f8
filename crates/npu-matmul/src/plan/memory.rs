// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a set of weights fits, answered before anything is allocated.

use std::fmt;

use rocket_uapi::PAGE_BYTES;

use super::WeightPlan;
use super::options::PlanOptions;
use super::sums::Accumulate;
use super::waves::WAVES_IN_FLIGHT;
use super::weights::DEVICE_BYTES_MAX;
use crate::buffers::IDLE_BYTES_MAX;

/// Bytes of a page.
const PAGE: u64 = PAGE_BYTES as u64;

/// What the addresses of one file descriptor have room for besides weights: the
/// activation and output buffers of all steps in flight, those of partial results
/// that the NPU adds up, and the buffers that are kept for later steps.
fn working_bytes(options: &PlanOptions) -> u64 {
    let each = match options.accumulate {
        Accumulate::Cpu => 2,
        Accumulate::Npu => 3,
    };
    let buffers = each * WAVES_IN_FLIGHT as u64;
    let largest = options.limits.buffer_bytes as u64;
    (buffers.saturating_mul(largest)).saturating_add(IDLE_BYTES_MAX as u64)
}

/// Weights that are to be on some devices at the same time, and the memory they
/// take there.
///
/// Each file descriptor addresses 4 GiB, and all of them together what the board
/// has: device memory is ordinary RAM.
///
/// ```
/// use npu_matmul::plan::{MemoryPlan, WeightPlan};
/// use npu_matmul::{PlanOptions, Precision};
///
/// let options = PlanOptions::default();
/// let mut memory = MemoryPlan::new(3, 2 << 30, &options);
/// let layer = WeightPlan::new(Precision::Int8, 14336, 4096, 3, &options)?;
/// let mut layers = 0;
/// while memory.add(&layer).is_ok() {
///     layers += 1;
/// }
/// assert_eq!(layers, 36);
/// # Ok::<(), npu_matmul::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    per_device: Vec<u64>,
    device_limit: u64,
    total_limit: u64,
}

/// Why weights do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DoesNotFit {
    /// One file descriptor has too few addresses left.
    #[error(
        "file descriptor {device} would hold {bytes} bytes of weights of the {limit} that it \
         can address beside its working buffers; use more file descriptors"
    )]
    Addresses {
        /// Index into the device pool.
        device: usize,
        /// What it would hold.
        bytes: u64,
        /// What it can.
        limit: u64,
    },
    /// All together take more memory than they may.
    #[error("the weights would take {bytes} bytes of the {limit} that they may")]
    Memory {
        /// What they would take.
        bytes: u64,
        /// What they may.
        limit: u64,
    },
    /// The weights were planned for more devices.
    #[error("the weights are planned for device {device} of {devices}")]
    Devices {
        /// Index that they name.
        device: usize,
        /// Devices that there are.
        devices: usize,
    },
}

impl MemoryPlan {
    /// No weights yet, on so many devices, which may take `total` bytes in all.
    #[must_use]
    pub fn new(devices: usize, total: u64, options: &PlanOptions) -> Self {
        let addresses = DEVICE_BYTES_MAX;
        Self {
            per_device: vec![0; devices],
            device_limit: addresses.saturating_sub(working_bytes(options)),
            total_limit: total,
        }
    }

    /// Adds weights if they fit.
    ///
    /// # Errors
    /// [`DoesNotFit`]; then nothing is added.
    pub fn add(&mut self, weights: &WeightPlan) -> Result<(), DoesNotFit> {
        let devices = self.per_device.len();
        let mut after = self.per_device.clone();
        for block in &weights.blocks {
            let device = block.device;
            let bytes = (weights.block_bytes(block) as u64).next_multiple_of(PAGE);
            let held = after
                .get_mut(device)
                .ok_or(DoesNotFit::Devices { device, devices })?;
            *held = held.saturating_add(bytes);
            if *held > self.device_limit {
                let (bytes, limit) = (*held, self.device_limit);
                return Err(DoesNotFit::Addresses {
                    device,
                    bytes,
                    limit,
                });
            }
        }
        let bytes = after.iter().sum();
        if bytes > self.total_limit {
            let limit = self.total_limit;
            return Err(DoesNotFit::Memory { bytes, limit });
        }
        self.per_device = after;
        Ok(())
    }

    /// Takes away weights that were added.
    pub fn remove(&mut self, weights: &WeightPlan) {
        for block in &weights.blocks {
            let bytes = (weights.block_bytes(block) as u64).next_multiple_of(PAGE);
            if let Some(held) = self.per_device.get_mut(block.device) {
                *held = held.saturating_sub(bytes);
            }
        }
    }

    /// Bytes of weights on each device.
    #[must_use]
    pub fn per_device(&self) -> &[u64] {
        &self.per_device
    }

    /// Bytes of weights that a device can address beside its working buffers.
    #[must_use]
    pub const fn device_limit(&self) -> u64 {
        self.device_limit
    }

    /// Bytes of weights on all devices.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.per_device.iter().sum()
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} bytes on {} device(s)",
            self.total(),
            self.total_limit,
            self.per_device.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::Precision;

    fn weights(n: usize, k: usize, devices: usize) -> WeightPlan {
        WeightPlan::new(Precision::Int8, n, k, devices, &PlanOptions::default()).unwrap()
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
        // 3.5 GiB in layers of 56 MiB.
        assert_eq!(memory.total(), 64 * layer.device_bytes());
        assert_eq!(memory.device_limit(), memory.total());
        assert!(matches!(error, DoesNotFit::Addresses { device: 0, .. }));

        let mut memory = MemoryPlan::new(3, 100 << 20, &options);
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
