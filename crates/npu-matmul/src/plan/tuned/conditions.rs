// SPDX-License-Identifier: MIT OR Apache-2.0
//! What measured choices hold for.

use std::fmt;

use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;
use serde::{Deserialize, Serialize};

/// Hz of a MHz.
const HERTZ_PER_MHZ: f64 = 1e6;

/// What measured the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// An NPU: times are measured.
    Silicon,
    /// The software model: times are modelled.
    Model,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silicon => "an NPU",
            Self::Model => "the software model",
        })
    }
}

/// On what choices were measured: they say nothing of anything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedFor {
    /// The chip, as [`ChipProfile::name`](rknpu_regcmd::ChipProfile::name) has
    /// it.
    pub chip: String,
    /// An NPU, or software.
    pub device: DeviceKind,
    /// The DRM driver.
    pub driver: String,
    /// Its version: major, minor, patch level.
    pub driver_version: [i32; 3],
    /// Clock of the NPU that was assumed, Hz: the driver does not tell it.
    pub clock_hz: u64,
}

/// Why measured choices are not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these plans were measured for {what} {theirs}, and here it is {ours}")]
pub struct OtherConditions {
    /// Name of the condition that differs.
    pub what: &'static str,
    /// Its value where the plans were measured.
    pub theirs: String,
    /// Its value on this machine.
    pub ours: String,
}

impl TunedFor {
    /// The conditions of a device of which plans assume that it is `machine`.
    #[must_use]
    pub fn device(info: &DeviceInfo, machine: &Machine) -> Self {
        let (major, minor, patch) = info.version;
        Self {
            chip: machine.chip.name.to_owned(),
            device: if info.is_model {
                DeviceKind::Model
            } else {
                DeviceKind::Silicon
            },
            driver: info.driver.clone(),
            driver_version: [major, minor, patch],
            clock_hz: machine.clock_hz,
        }
    }

    /// Checks that choices for these conditions hold in others.
    ///
    /// # Errors
    /// The first condition that differs.
    pub fn check(&self, here: &Self) -> Result<(), OtherConditions> {
        let version = |[major, minor, patch]: [i32; 3]| format!("{major}.{minor}.{patch}");
        let parts = |all: &Self| {
            [
                ("the chip", all.chip.clone()),
                ("the device", all.device.to_string()),
                ("the driver", all.driver.clone()),
                ("the driver's version", version(all.driver_version)),
                ("a clock of", megahertz(all.clock_hz)),
            ]
        };
        let differing = parts(self)
            .into_iter()
            .zip(parts(here))
            .find(|(theirs, ours)| theirs != ours);
        match differing {
            None => Ok(()),
            Some(((what, theirs), (_, ours))) => Err(OtherConditions { what, theirs, ours }),
        }
    }
}

impl fmt::Display for TunedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.driver_version;
        write!(
            f,
            "{}, {}, {} {major}.{minor}.{patch}, {}",
            self.chip,
            self.device,
            self.driver,
            megahertz(self.clock_hz)
        )
    }
}

/// All digits: two clocks that differ read differently.
fn megahertz(clock_hz: u64) -> String {
    format!("{} MHz", clock_hz as f64 / HERTZ_PER_MHZ)
}
