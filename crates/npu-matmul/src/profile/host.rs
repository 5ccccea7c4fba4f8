// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the CPU's share of a product takes: packing A, reading C, and the cache
//! maintenance of the driver's calls.
//!
//! The kernels are counted, not measured: instructions that `cargo xtask
//! instructions` counts for an element on an A76 (docs/matmul-figures.md has its
//! table), and bytes that they move. Nobody has run them on a board. What is
//! published for another library, 2.0 ns to lay out an element and 3.6 ns to read
//! one on one A76 (E-time-client), is of that library's loops: docs/timing-figures.md
//! compares its products with those figures, and no plan is made with them.

use rknpu_regcmd::MatmulType;
use serde::{Deserialize, Serialize};

use crate::dtype::Dtype;

/// Picoseconds of a second.
pub(crate) const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// The processor that packs and unpacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCores {
    /// Cores that work on a product.
    pub cores: u32,
    /// Their clock, Hz.
    pub clock_hz: u64,
    /// Instructions of a kernel that a core finishes in a clock.
    pub instructions_per_clock: u32,
    /// Bytes that all cores together read and write a second.
    pub bytes_per_second: u64,
    /// Bytes of a buffer object that PREP_BO or FINI_BO pass a second, on one core.
    pub sync_bytes_per_second: u64,
}

impl HostCores {
    /// The four Cortex-A76 of an RK3588.
    ///
    /// * 2.2 GHz, the lowest of the maxima that boards set.
    /// * Two instructions a clock: an A76 has two vector pipes. Chosen, not measured.
    /// * 17 GB/s: what the board's LPDDR gives (E-time-lpddr). The NPU moves its bytes
    ///   through the same LPDDR: [`Profile::memory_bytes_per_second`](super::Profile::memory_bytes_per_second) limits both together.
    /// * 127 ms in 200 synchronisations of 64 tiles of 128 KiB (E-time-client).
    pub const RK3588: Self = Self {
        cores: 4,
        clock_hz: 2_200_000_000,
        instructions_per_clock: 2,
        bytes_per_second: 17_000_000_000,
        sync_bytes_per_second: 13_210_000_000,
    };

    /// Picoseconds of `elements` that cost so much each: the longer of executing
    /// and moving.
    #[must_use]
    pub fn kernel_ps(&self, elements: u64, kernel: KernelCost) -> u64 {
        let clocks = u128::from(self.cores.max(1))
            * u128::from(self.instructions_per_clock.max(1))
            * u128::from(self.clock_hz.max(1));
        let executed = u128::from(elements) * u128::from(kernel.centi_instructions);
        let computing = executed.saturating_mul(PS_PER_SECOND) / (clocks * 100);
        clamped(computing).max(bytes_ps(kernel.bytes(elements), self.bytes_per_second))
    }

    /// Picoseconds in which PREP_BO or FINI_BO pass `bytes`.
    #[must_use]
    pub fn sync_ps(&self, bytes: u64) -> u64 {
        bytes_ps(bytes, self.sync_bytes_per_second)
    }
}

impl Default for HostCores {
    fn default() -> Self {
        Self::RK3588
    }
}

/// What an element costs a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    /// Instructions, in hundredths.
    pub centi_instructions: u32,
    /// Bits that are read and written.
    pub bits: u32,
}

/// Where an element that the NPU wrote goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpackTo {
    /// It is the result, or the first of those that are added up.
    Result,
    /// It is added to one that the same job has just made.
    CachedSum,
    /// It is added to one that an earlier job made.
    Sum,
}

impl KernelCost {
    const fn new(centi_instructions: u32, bits: u32) -> Self {
        Self {
            centi_instructions,
            bits,
        }
    }

    /// Bytes that so many elements read and write.
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
            Dtype::Fp16 => Self::new(101, 32),
            // An eight-bit activation becomes two rows of nibbles.
            Dtype::Int4 => Self::new(53, 8),
        }
    }

    /// Reading an element that the NPU wrote.
    #[must_use]
    pub const fn unpack(ty: MatmulType, to: UnpackTo) -> Self {
        let result_bits = match ty {
            MatmulType::Fp16ToFp16 => 16,
            _ => 32,
        };
        let moved = match to {
            UnpackTo::Result => result_bits,
            UnpackTo::CachedSum => 0,
            UnpackTo::Sum => 2 * result_bits,
        };
        let bits = ty.out_bytes() * 8 + moved;
        match (ty, to) {
            // With a scale for each row and column, as quantised products have it.
            (MatmulType::Int8ToInt32, UnpackTo::Result) => Self::new(557, bits),
            (MatmulType::Int4ToInt16, _) => Self::new(210, bits),
            (MatmulType::Fp16ToFp16, _) => Self::new(101, bits),
            _ => Self::new(291, bits),
        }
    }

    /// The softmax of attention, a score: the maximum of its row, and its exponential in place.
    pub const SOFTMAX: Self = Self::new(621, 48);

    /// Adding a score of a further part of the vectors: what it moves. Its instructions were
    /// not counted.
    pub const ADD_SCORES: Self = Self::new(0, 48);

    /// Packing a key or a value, the latter transposed.
    pub const PACK_COLUMNS: Self = Self::new(358, 32);

    /// One stage of a Hadamard rotation, of which a block of 2^s elements has s.
    pub const ROTATION_STAGE: Self = Self::new(53, 0);

    /// Rounding floats to the operands of this precision, once for all devices, before
    /// they are packed: a pass over a row for its largest magnitude, and one that converts
    /// it, which finds the row in the cache.
    #[must_use]
    pub const fn round(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Fp16 => Self::new(224, 48),
            Dtype::Int8 | Dtype::Int4 => Self::new(298, 40),
        }
    }
}

/// Picoseconds to move `bytes` at so many bytes a second, rounded up.
pub(crate) fn bytes_ps(bytes: u64, per_second: u64) -> u64 {
    let rate = u128::from(per_second.max(1));
    clamped((u128::from(bytes) * PS_PER_SECOND).div_ceil(rate))
}

/// Beyond 64 bits, the most that they hold.
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
