// SPDX-License-Identifier: MIT OR Apache-2.0
//! The profile of a board.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;
use serde::{Deserialize, Serialize};

use super::board::{Board, ContestedFact};
use super::choices::Choices;
use super::envelope::{self, MeasuredTile};
use super::host::{HostCores, bytes_ps};
use super::sides::{CostSide, KernelTimes, int8_macs_on, machine_on};

/// The profile of a board: speeds, choices, tiles and facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name for reports and logs.
    pub name: Cow<'static, str>,
    /// The board that was measured; `None` if nothing was measured, which holds everywhere.
    pub board: Option<Board>,
    /// Whether `npu-probe calibrate` measured speeds, costs and tiles. If not, the file has the
    /// findings of `npu-probe first`, and published values for the rest.
    #[serde(default = "yes")]
    pub measured: bool,
    /// Clock, memory and start costs.
    pub machine: Machine,
    /// The CPU that packs and unpacks.
    pub host: HostCores,
    /// Costs of the kernel that nothing but a measurement shows.
    #[serde(default)]
    pub kernel: KernelTimes,
    /// Multiply-adds a second of the CPU's own attention in llama.cpp; `None` if not measured.
    #[serde(default)]
    pub attention_macs_per_second: Option<u64>,
    /// Multiply-adds a second of the CPU in INT8 jobs, on all of its cores, which do nothing else;
    /// `None` if not measured.
    #[serde(default)]
    pub int8_macs_per_second: Option<u64>,
    /// Choices for programs and buffers where sources differ or are silent.
    #[serde(default = "Choices::published")]
    pub choices: Choices,
    /// Tiles that have run on silicon; each allows all smaller ones.
    pub envelope: Vec<MeasuredTile>,
    /// Contested facts that an experiment has decided.
    pub facts: Vec<ContestedFact>,
    /// The side that [`Profile::on`] chose. Files do not have it.
    #[serde(skip)]
    pub side: CostSide,
}

static BUILT_IN: LazyLock<Arc<Profile>> = LazyLock::new(|| {
    Arc::new(Profile {
        name: "RK3588, mainline, 200 MHz, unmeasured".into(),
        board: None,
        measured: false,
        machine: Machine::RK3588.at_clock(Machine::BOOT_CLOCK_HZ),
        host: HostCores::RK3588,
        kernel: KernelTimes::default(),
        attention_macs_per_second: None,
        int8_macs_per_second: None,
        choices: Choices::published(),
        envelope: envelope::published(),
        facts: Vec::new(),
        side: CostSide::Likely,
    })
});

/// Default for files older than [`Profile::measured`].
const fn yes() -> bool {
    true
}

impl Profile {
    /// Whether the profile's board was calibrated. The software model is no board: its times are
    /// modelled.
    #[must_use]
    pub fn is_calibrated(&self) -> bool {
        self.measured && self.board.as_ref().is_some_and(|board| !board.is_model)
    }

    /// Whether plans may use tiles that have never run on a board. True on a model, which runs
    /// every legal tile, unless a profile file lists the board's tiles.
    #[must_use]
    pub const fn allows_unmeasured_tiles(&self, info: &DeviceInfo) -> bool {
        info.is_model && (self.board.is_none() || self.measured)
    }

    /// The built-in profile: an RK3588 under mainline Linux at its boot clock (E-clock-boot), from
    /// published figures. For boards that were not measured.
    #[must_use]
    pub fn built_in() -> Arc<Self> {
        Arc::clone(&BUILT_IN)
    }

    /// The built-in profile with another clock, in Hz.
    #[must_use]
    pub fn at_clock(&self, clock_hz: u64) -> Self {
        let mut profile = self.clone();
        profile.machine.clock_hz = clock_hz;
        profile
    }

    /// The profile by which a prediction of this side is made: what was not measured on the board
    /// takes its value of this side.
    #[must_use]
    pub fn on(&self, side: CostSide) -> Self {
        let mut profile = self.clone();
        if !self.is_calibrated() {
            profile.machine = machine_on(profile.machine, side);
        }
        profile.kernel = profile.kernel.on(side);
        profile.side = side;
        profile
    }

    /// Bytes per second that CPU and NPU move together. They share one DRAM, whose bandwidth is at
    /// least what either one reached alone.
    #[must_use]
    pub fn memory_bytes_per_second(&self) -> u64 {
        let npu = self.machine.dram.shared_bytes_per_second;
        npu.max(self.host.bytes_per_second)
    }

    /// Picoseconds for FINI_BO of `bytes` that the CPU wrote; like clean ones, if neither
    /// calibration nor a [`CostSide`](super::CostSide) says more.
    #[must_use]
    pub fn dirty_sync_ps(&self, bytes: u64) -> u64 {
        match self.kernel.dirty_sync_bytes_per_second {
            Some(rate) => bytes_ps(bytes, rate),
            None => self.host.sync_ps(bytes),
        }
    }

    /// Picoseconds in which the kernel provides `bytes` of new buffers and the CPU first writes
    /// them, on one core; 0 if neither calibration nor a [`CostSide`](super::CostSide) says more.
    #[must_use]
    pub fn first_touch_ps(&self, bytes: u64) -> u64 {
        let rate = self.kernel.first_touch_bytes_per_second;
        rate.map_or(0, |rate| bytes_ps(bytes, rate))
    }

    /// Picoseconds in which the CPU computes `macs` multiply-adds of INT8 jobs.
    #[must_use]
    pub fn int8_ps(&self, macs: u64) -> u64 {
        bytes_ps(macs, int8_macs_on(self.int8_macs_per_second, self.side))
    }

    /// Picoseconds by which the first job starts later after 50 ms without one: all cores resume
    /// at the same time. Like [`Self::first_touch_ps`], 0 if unknown.
    #[must_use]
    pub fn resume_ps(&self) -> u64 {
        self.kernel.resume_ps.unwrap_or(0)
    }
}
