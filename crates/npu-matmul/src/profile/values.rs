// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that is known of a board.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;
use serde::{Deserialize, Serialize};

use super::board::{Board, ContestedFact};
use super::choices::Choices;
use super::envelope::{self, MeasuredTile};
use super::host::HostCores;

/// All that is known of a board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// For people.
    pub name: Cow<'static, str>,
    /// What it was measured on; `None` if nothing was, and it holds everywhere.
    pub board: Option<Board>,
    /// Whether `npu-probe calibrate` has measured speeds, costs and tiles there; else the
    /// file has what `npu-probe first` found, and all else is as published.
    #[serde(default = "yes")]
    pub measured: bool,
    /// Clock, memory and start costs.
    pub machine: Machine,
    /// What packs and unpacks.
    pub host: HostCores,
    /// What programs and buffers do where sources differ or are silent.
    #[serde(default = "Choices::published")]
    pub choices: Choices,
    /// Tiles that have run on silicon, each with all smaller ones.
    pub envelope: Vec<MeasuredTile>,
    /// Contested facts that an experiment has decided.
    pub facts: Vec<ContestedFact>,
}

static BUILT_IN: LazyLock<Arc<Profile>> = LazyLock::new(|| {
    Arc::new(Profile {
        name: "RK3588, mainline, 200 MHz, unmeasured".into(),
        board: None,
        measured: false,
        machine: Machine::RK3588.at_clock(Machine::BOOT_CLOCK_HZ),
        host: HostCores::RK3588,
        choices: Choices::published(),
        envelope: envelope::published(),
        facts: Vec::new(),
    })
});

/// Of files before [`Profile::measured`].
const fn yes() -> bool {
    true
}

impl Profile {
    /// Whether its board was calibrated.
    #[must_use]
    pub const fn is_calibrated(&self) -> bool {
        self.board.is_some() && self.measured
    }

    /// Whether plans may have tiles that no board is known to have run: on a model, which
    /// does all that is legal, but not by a file that says what a board cannot do.
    #[must_use]
    pub const fn allows_unmeasured_tiles(&self, info: &DeviceInfo) -> bool {
        info.is_model && (self.board.is_none() || self.measured)
    }

    /// An RK3588 as mainline Linux leaves it (E-clock-boot), by published figures:
    /// what holds where nobody has measured.
    #[must_use]
    pub fn built_in() -> Arc<Self> {
        Arc::clone(&BUILT_IN)
    }

    /// The same at another clock, in Hz.
    #[must_use]
    pub fn at_clock(&self, clock_hz: u64) -> Self {
        let mut profile = self.clone();
        profile.machine.clock_hz = clock_hz;
        profile
    }

    /// Bytes a second that CPU and NPU together move: they share one DRAM, which gives at
    /// least what either of them was seen to move without the other.
    #[must_use]
    pub fn memory_bytes_per_second(&self) -> u64 {
        let npu = self.machine.dram.shared_bytes_per_second;
        npu.max(self.host.bytes_per_second)
    }
}
