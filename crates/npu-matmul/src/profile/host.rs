// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cost model of the CPU's share of a matmul: packing A, reading C, and cache maintenance in driver
//! calls.
//!
//! The costs are counted, not measured. Instructions for each element were counted in the `dist`
//! build on QEMU's model of an A76 (a kernel that ran twice, less one that ran once); bytes moved
//! follow from the loops. None of it has run on a board. Published figures of another library,
//! 2.0 ns to pack and 3.6 ns to read an element on one A76 (E-time-client), are for that library's
//! loops. docs/timing-figures.md compares that library with them; plans do not use them.

use serde::{Deserialize, Serialize};

use crate::numbers::dtype::Dtype;

/// Picoseconds per second.
pub(crate) const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// The CPU that packs and unpacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCores {
    /// Cores that work on a matmul.
    pub cores: u32,
    /// Clock of the cores, Hz.
    pub clock_hz: u64,
    /// Instructions of a kernel that a core completes per clock cycle.
    pub instructions_per_clock: u32,
    /// Bytes per second that all cores together read and write.
    pub bytes_per_second: u64,
    /// Bytes per second that PREP_BO or FINI_BO process, on one core, of lines that the CPU has
    /// only read.
    pub sync_bytes_per_second: u64,
}

impl HostCores {
    /// The four Cortex-A76 of an RK3588.
    ///
    ///  * 2.2 GHz: the lowest of the maximum clocks that boards set.
    ///  * Two instructions per cycle: an A76 has two vector pipes. Chosen, not measured.
    ///  * 17 GB/s: bandwidth of the board's LPDDR (E-time-lpddr). The NPU uses the same LPDDR;
    ///    [`Profile::memory_bytes_per_second`](super::Profile::memory_bytes_per_second) limits both.
    ///  * 127 ms for 200 synchronisations of 64 tiles of 128 KiB of results (E-time-client).
    pub const RK3588: Self = Self {
        cores: 4,
        clock_hz: 2_200_000_000,
        instructions_per_clock: 2,
        bytes_per_second: 17_000_000_000,
        sync_bytes_per_second: 13_210_000_000,
    };

    /// Picoseconds for a kernel over `elements`: the longer of execution and memory traffic.
    #[must_use]
    pub fn kernel_ps(&self, elements: u64, kernel: KernelCost) -> u64 {
        let clocks = u128::from(self.cores.max(1))
            * u128::from(self.instructions_per_clock.max(1))
            * u128::from(self.clock_hz.max(1));
        let executed = u128::from(elements) * u128::from(kernel.centi_instructions);
        let computing = executed.saturating_mul(PS_PER_SECOND) / (clocks * 100);
        clamped(computing).max(bytes_ps(kernel.bytes(elements), self.bytes_per_second))
    }

    /// Picoseconds for PREP_BO or FINI_BO of `bytes` that the CPU has only read.
    #[must_use]
    pub fn sync_ps(&self, bytes: u64) -> u64 {
        bytes_ps(bytes, self.sync_bytes_per_second)
    }
}

/// Cost of one element in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    /// Instructions, in hundredths.
    pub centi_instructions: u32,
    /// Bits read and written.
    pub bits: u32,
}

/// Destination of an element that the NPU wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpackTo {
    /// Stored as the result or as the first partial sum.
    Result,
    /// Added to a partial sum of the same job, still in the cache.
    CachedSum,
    /// Added to a partial sum of an earlier job.
    Sum,
}

impl KernelCost {
    const fn new(centi_instructions: u32, bits: u32) -> Self {
        Self {
            centi_instructions,
            bits,
        }
    }

    /// Bytes read and written for `elements`.
    #[must_use]
    pub fn bytes(&self, elements: u64) -> u64 {
        let bits = u128::from(elements) * u128::from(self.bits);
        clamped(bits.div_ceil(8))
    }

    /// Packing an activation of this precision for one device.
    #[must_use]
    pub const fn pack(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Int8 => Self::new(50, 16),
            Dtype::Fp16 => Self::new(100, 32),
            Dtype::Int4 => Self::new(53, 12),
        }
    }

    /// Reading an element of the NPU's output.
    #[must_use]
    pub const fn unpack(dtype: Dtype, to: UnpackTo) -> Self {
        let moved = match to {
            UnpackTo::Result => 32,
            UnpackTo::CachedSum => 0,
            UnpackTo::Sum => 64,
        };
        let bits = dtype.output_bytes() as u32 * 8 + moved;
        match (dtype, to) {
            // With a scale for each row and column, as in quantised matmuls.
            (Dtype::Int8, UnpackTo::Result) => Self::new(557, bits),
            (Dtype::Int4, _) => Self::new(210, bits),
            _ => Self::new(291, bits),
        }
    }

    /// The softmax of attention, for each score: reading it, its row's maximum, and its exponential.
    /// Counted as 823 with a maximum by integers; by floats it takes 119 less (9 instructions for 16
    /// scores instead of 14 for 8, in the compiled loops).
    pub const SOFTMAX: Self = Self::new(704, 48);

    /// Adding a score from another part of the vectors.
    pub const ADD_SCORES: Self = Self::new(239, 32);

    /// Packing a key, or a value with a transpose.
    pub const PACK_COLUMNS: Self = Self::new(359, 32);

    /// Checking that a key or value is finite, just before it is packed: it stays in the cache.
    pub const ALL_FINITE: Self = Self::new(55, 0);

    /// One stage of a Hadamard rotation; a block of 2^s elements has s stages.
    pub const ROTATION_STAGE: Self = Self::new(45, 0);

    /// Rounding floats to operands of this precision, once for all devices, before packing. One
    /// pass finds a row's largest magnitude; a second pass converts the row, which is then in the
    /// cache.
    #[must_use]
    pub const fn round(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Fp16 => Self::new(190, 48),
            Dtype::Int8 | Dtype::Int4 => Self::new(240, 40),
        }
    }
}

/// Picoseconds to move `bytes` at this rate, rounded up.
pub(crate) fn bytes_ps(bytes: u64, per_second: u64) -> u64 {
    let rate = u128::from(per_second.max(1));
    clamped((u128::from(bytes) * PS_PER_SECOND).div_ceil(rate))
}

/// Clamps to 64 bits.
pub(crate) fn clamped(ps: u128) -> u64 {
    u64::try_from(ps).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_executing_and_moving_counts() {
        let host = HostCores {
            cores: 2,
            clock_hz: 1_000_000_000,
            instructions_per_clock: 1,
            bytes_per_second: 8_000_000_000,
            sync_bytes_per_second: 1_000_000_000,
        };
        // 3 instructions on two cores: 1.5 ns; 8 bytes: 1 ns.
        assert_eq!(host.kernel_ps(1, KernelCost::new(300, 64)), 1500);
        assert_eq!(host.kernel_ps(1, KernelCost::new(100, 64)), 1000);
        assert_eq!(host.sync_ps(3), 3000);
        let nothing = HostCores {
            cores: 0,
            clock_hz: 0,
            instructions_per_clock: 0,
            bytes_per_second: 0,
            sync_bytes_per_second: 0,
        };
        assert!(nothing.kernel_ps(u64::MAX, KernelCost::new(u32::MAX, 1)) > 0);
        assert!(nothing.sync_ps(1) > 0);
    }
}
