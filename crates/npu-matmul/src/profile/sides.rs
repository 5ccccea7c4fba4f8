// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs that sources disagree on, or that nobody has measured: each has two sides.
//!
//! A prediction is a range. Its likely end takes the pessimistic side of each of these costs, its
//! upper bound of speed the optimistic one. What `npu-probe calibrate` measured on the board
//! replaces both sides; of the speed of jobs on the CPU the likely side takes half. Plans do not
//! depend on a side: they use the profile as it is.

use rknpu_regcmd::timing::{Dram, DriverCosts, Machine};
use serde::{Deserialize, Serialize};

use super::host::HostCores;

const PS_PER_US: u64 = 1_000_000;

/// An end of the range of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CostSide {
    /// What a board is likely to show.
    #[default]
    Likely,
    /// The upper bound of speed: no board is faster.
    Upper,
}

/// A cost, by side.
#[derive(Clone, Copy, Debug)]
struct TwoSided<T> {
    likely: T,
    upper: T,
}

/// The memory's rates.
///
/// * Likely: [`Dram::RK3588`], with 6 bytes a clock instead of the fitted 8: with them tiles in a
///   chain take as long as measured (E-time-tiles). Others infer 3 to 6 GB/s at
///   600 MHz (E-time-memory).
/// * Upper: the vendor's decode reads 31 GB of weights a second at 1 GHz (E-time-vendor): at least
///   10 bytes in each clock of three cores. Tiles at 200 MHz (E-time-clock) and jobs on two and
///   four files (E-time-cores) are as fast.
const DRAM: TwoSided<Dram> = TwoSided {
    likely: Dram {
        core_bytes_per_clock: 6,
        ..Dram::RK3588
    },
    upper: Dram {
        core_bytes_per_clock: 10,
        core_bytes_per_second: 10_300_000_000,
        shared_bytes_per_second: 31_000_000_000,
    },
};

/// Picoseconds of a kick. A chain of 64 tiles saves 44 or 69 us a tile over 64 kicks
/// (E-time-tiles); jobs of 64 small tasks take 10 us a task (E-time-cores).
const KICK_PS: TwoSided<u64> = TwoSided {
    likely: 69 * PS_PER_US,
    upper: DriverCosts::MAINLINE.kick_ps,
};

/// Bytes per second of FINI_BO of lines that the CPU wrote. Likely: estimated at 3 to 6 GB/s, not
/// measured. Upper: the rate of clean lines (E-time-client), which need no write to DRAM.
const DIRTY_SYNC: TwoSided<u64> = TwoSided {
    likely: 3_000_000_000,
    upper: HostCores::RK3588.sync_bytes_per_second,
};

/// Bytes per second of a new buffer until the CPU has written each page once: the kernel zeroes
/// and maps it page by page, and each page faults. Estimated at 1 to 1.5 s for 1.24 GB, not
/// measured.
const FIRST_TOUCH: TwoSided<u64> = TwoSided {
    likely: 827_000_000,
    upper: 1_240_000_000,
};

/// Picoseconds by which a core starts later after 50 ms without a job: power domain, clocks and
/// IOMMU. Estimated at 0.3 to 1 ms, not measured.
const RESUME_PS: TwoSided<u64> = TwoSided {
    likely: 1_000 * PS_PER_US,
    upper: 300 * PS_PER_US,
};

/// Multiply-adds a second of the CPU in INT8 jobs, not measured.
///
/// * Upper: two `sdot` of 16 each in every clock of four Cortex-A76 of 2.2 GHz: they have two vector
///   pipes.
/// * Likely: the kernel executes 9.5 hundredths of an instruction for each (counted on QEMU's A76),
///   185 billion a second at the rate of [`HostCores::RK3588`]. Half of that, estimated: threads of
///   the program may wait actively on the same cores, and cores and NPU share caches and memory.
const INT8_MACS: TwoSided<u64> = TwoSided {
    likely: 92_500_000_000,
    upper: 281_600_000_000,
};

/// Multiply-adds a second of the CPU in INT8 jobs, on this side. `measured` is the rate of cores that
/// do nothing else, of which the likely side takes half, as above.
pub(super) fn int8_macs_on(measured: Option<u64>, side: CostSide) -> u64 {
    match (measured, side) {
        (None, _) => INT8_MACS.on(side),
        (Some(rate), CostSide::Likely) => rate / 2,
        (Some(rate), CostSide::Upper) => rate,
    }
}

impl<T: Copy> TwoSided<T> {
    const fn on(&self, side: CostSide) -> T {
        match side {
            CostSide::Likely => self.likely,
            CostSide::Upper => self.upper,
        }
    }
}

/// Costs of the kernel that only `npu-probe calibrate` knows; `None` if it did not measure them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelTimes {
    /// Bytes per second of FINI_BO of lines that the CPU wrote, on one core.
    pub dirty_sync_bytes_per_second: Option<u64>,
    /// Bytes per second of a new buffer that the CPU writes for the first time.
    pub first_touch_bytes_per_second: Option<u64>,
    /// Picoseconds by which a core starts later after 50 ms without a job.
    pub resume_ps: Option<u64>,
}

impl KernelTimes {
    /// The same, with this side of what was not measured.
    pub(super) const fn on(&self, side: CostSide) -> Self {
        const fn filled(cost: Option<u64>, sides: TwoSided<u64>, side: CostSide) -> Option<u64> {
            match cost {
                Some(_) => cost,
                None => Some(sides.on(side)),
            }
        }
        Self {
            dirty_sync_bytes_per_second: filled(self.dirty_sync_bytes_per_second, DIRTY_SYNC, side),
            first_touch_bytes_per_second: filled(
                self.first_touch_bytes_per_second,
                FIRST_TOUCH,
                side,
            ),
            resume_ps: filled(self.resume_ps, RESUME_PS, side),
        }
    }
}

/// The machine with this side of what sources disagree on.
pub(super) const fn machine_on(mut machine: Machine, side: CostSide) -> Machine {
    machine.dram = DRAM.on(side);
    machine.driver.kick_ps = KICK_PS.on(side);
    machine
}
