// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of the timing model, each with the measurement that it comes from.
//!
//! They were fixed before the planner used them. `docs/timing-figures.md` says which
//! published figures they were fitted to; all others are predictions.

use crate::chip::ChipProfile;

pub(super) const PS_PER_SECOND: u128 = 1_000_000_000_000;
const PS_PER_US: u64 = 1_000_000;

/// How fast data move between DRAM and the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Dram {
    /// Bytes that one core moves in each of its clocks, all engines together.
    pub core_bytes_per_clock: u32,
    /// Bytes per second that one core moves at most, at any clock.
    pub core_bytes_per_second: u64,
    /// Bytes per second that all cores move together.
    pub shared_bytes_per_second: u64,
}

impl Dram {
    /// LPDDR of an RK3588 board.
    ///
    /// * A core: 8 bytes a clock, the whole number with the least squared relative
    ///   error over four single-core figures at 600 MHz: tile 256x384x256 fp16 in a
    ///   chain (150 us) and kicked separately (194 us; E-time-tiles), a submit of
    ///   64x256x512 (109 us; E-time-submit), a job of 16 tasks 256x512x256 (3 ms;
    ///   E-time-job16, whose source is gone).
    /// * Upper bound of a core: its rate at 600 MHz, as the same tiles take as long
    ///   at 900 MHz (E-time-tiles).
    /// * All cores: 17 GB/s, the bandwidth of the board's LPDDR (E-time-lpddr).
    pub const RK3588: Self = Self {
        core_bytes_per_clock: 8,
        core_bytes_per_second: 4_800_000_000,
        shared_bytes_per_second: 17_000_000_000,
    };

    /// Bytes per second of one core at `clock_hz` while `cores` of them move
    /// data; at least 1.
    #[must_use]
    pub fn rate(&self, clock_hz: u64, cores: u64) -> u64 {
        let by_clock = u64::from(self.core_bytes_per_clock).saturating_mul(clock_hz);
        let share = self.shared_bytes_per_second / cores.max(1);
        by_clock.min(self.core_bytes_per_second).min(share).max(1)
    }
}

/// What the kernel driver adds to the work of the device, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct DriverCosts {
    /// From the SUBMIT call until the job is queued.
    pub submit_ps: u64,
    /// Attaching the file's address space to the core's IOMMU and detaching it, once
    /// for each job.
    pub attach_ps: u64,
    /// Each kick: the register writes before it, the interrupt and its thread
    /// after it. Predictions take the two sides of this cost, and of the memory's rates, from
    /// `npu-matmul`, `profile/sides.rs`.
    pub kick_ps: u64,
    /// From the end of a job until the waiting client runs again.
    pub wake_ps: u64,
}

impl DriverCosts {
    /// Mainline `rocket` with its default settings, and its interrupts on an A55.
    ///
    /// * The median time of submit and wait for a tiny job (8x64x16; E-time-submit)
    ///   is 51 to 54 us; 34 with the IOMMU kept attached, so attaching takes 18 us
    ///   (17 to 18 there by a second way). That leaves 33 us for submit, kick and
    ///   wake.
    /// * A job of 64 small tasks takes 768 us (E-time-cores), hence 10 us for a
    ///   kick: the driver starts the next task in the interrupt's thread, and wakes no
    ///   client.
    /// * The division of the rest was not measured: 2 us to submit are chosen.
    pub const MAINLINE: Self = Self {
        submit_ps: 2 * PS_PER_US,
        attach_ps: 18 * PS_PER_US,
        kick_ps: 10 * PS_PER_US,
        wake_ps: 21 * PS_PER_US,
    };

    /// No driver costs.
    pub const NONE: Self = Self {
        submit_ps: 0,
        attach_ps: 0,
        kick_ps: 0,
        wake_ps: 0,
    };
}

/// Everything that modelled times depend on, besides the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Machine {
    /// The chip; only its number of cores matters here.
    #[cfg_attr(feature = "serde", serde(with = "chip_name"))]
    pub chip: ChipProfile,
    /// Clock of the NPU, Hz. Shared by the cores.
    pub clock_hz: u64,
    /// How fast its memory is.
    pub dram: Dram,
    /// The costs of its kernel driver.
    pub driver: DriverCosts,
}

impl Machine {
    /// RK3588 at 600 MHz under the mainline driver: the conditions of most
    /// published figures. An unpatched kernel leaves the
    /// clock at [`Self::BOOT_CLOCK_HZ`].
    pub const RK3588: Self = Self {
        chip: ChipProfile::RK3588,
        clock_hz: 600_000_000,
        dram: Dram::RK3588,
        driver: DriverCosts::MAINLINE,
    };

    /// The clock that boards boot with and that mainline Linux keeps
    /// (E-clock-boot).
    pub const BOOT_CLOCK_HZ: u64 = 200_000_000;

    /// The machine under a driver with other costs.
    #[must_use]
    pub const fn with_driver(mut self, driver: DriverCosts) -> Self {
        self.driver = driver;
        self
    }

    /// The machine at another clock, in Hz.
    #[must_use]
    pub const fn at_clock(mut self, clock_hz: u64) -> Self {
        self.clock_hz = clock_hz;
        self
    }

    pub(super) fn rate(&self, cores: u64) -> u64 {
        self.dram.rate(self.clock_hz, cores)
    }

    /// Picoseconds of `clocks` clocks, rounded up.
    pub(super) fn clocks_ps(&self, clocks: u64) -> u64 {
        amount_ps(clocks, self.clock_hz)
    }
}

/// Serializes a chip as its name.
#[cfg(feature = "serde")]
mod chip_name {
    use alloc::string::String;

    use serde::de::{Deserialize, Deserializer, Error, Unexpected};
    use serde::ser::Serializer;

    use crate::chip::ChipProfile;

    pub(super) fn serialize<S: Serializer>(chip: &ChipProfile, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(chip.name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ChipProfile, D::Error> {
        let name = String::deserialize(from)?;
        if name == ChipProfile::RK3588.name {
            return Ok(ChipProfile::RK3588);
        }
        let known = &ChipProfile::RK3588.name;
        Err(D::Error::invalid_value(Unexpected::Str(&name), known))
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::RK3588
    }
}

/// Picoseconds that `amount` bytes or clocks take at `rate` of them per second, rounded
/// up.
pub(super) fn amount_ps(amount: u64, rate: u64) -> u64 {
    let ps = (u128::from(amount) * PS_PER_SECOND).div_ceil(rate.max(1).into());
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Converts picoseconds to seconds.
#[must_use]
pub fn seconds(ps: u64) -> f64 {
    ps as f64 / PS_PER_SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_gets_its_own_ceiling_or_its_share() {
        let dram = Dram::RK3588;
        assert_eq!(dram.rate(200_000_000, 1), 1_600_000_000);
        assert_eq!(dram.rate(600_000_000, 3), 4_800_000_000);
        assert_eq!(dram.rate(900_000_000, 1), 4_800_000_000);
        assert_eq!(dram.rate(600_000_000, 4), 4_250_000_000);
        assert_eq!(dram.rate(0, 0), 1);
    }

    #[test]
    fn times_round_up_and_saturate() {
        let machine = Machine::RK3588;
        assert_eq!(machine.clocks_ps(3), 5_000);
        assert_eq!(machine.clocks_ps(1), 1_667);
        assert_eq!(machine.at_clock(0).clocks_ps(u64::MAX), u64::MAX);
        assert_eq!(amount_ps(48, 4_800_000_000), 10_000);
        assert_eq!(amount_ps(u64::MAX, 0), u64::MAX);
    }
}
