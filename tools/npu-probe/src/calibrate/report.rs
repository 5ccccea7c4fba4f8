// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `calibrate`, as text and as JSON.

use npu_matmul::Profile;
use npu_matmul::profile::HostCores;
use rknpu_regcmd::timing::{DriverCosts, Machine};
use serde::{Deserialize, Serialize};

use super::facts::report::SettleReport;
use crate::flags::planning::HERTZ_PER_MHZ;

const GIGA: f64 = 1e9;
const PS_PER_US: f64 = 1e6;

/// The report of `calibrate`, as printed with `--json`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct CalibrateReport {
    #[serde(flatten)]
    pub(crate) facts: SettleReport,
    /// The profile, unless only facts were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<Profile>,
    /// The file of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

/// A line about the machine.
pub(crate) fn machine(machine: &Machine) -> String {
    let DriverCosts {
        submit_ps,
        attach_ps,
        kick_ps,
        wake_ps,
    } = machine.driver;
    let us = |ps: u64| ps as f64 / PS_PER_US;
    format!(
        "{} MHz; {:.2} GB/s for one core, at most {:.2} GB/s for all; {:.1} us for each job, \
         {:.1} us for each task",
        machine.clock_hz / HERTZ_PER_MHZ,
        machine.dram.rate(machine.clock_hz, 1) as f64 / GIGA,
        machine.dram.shared_bytes_per_second as f64 / GIGA,
        us(submit_ps + attach_ps + wake_ps),
        us(kick_ps)
    )
}

/// A line about the CPU.
pub(super) fn host(host: &HostCores) -> String {
    let rate = |bytes: u64| bytes as f64 / GIGA;
    format!(
        "  {} cores at {:.2} instructions per ns each, memory {:.2} GB/s, caches {:.2} GB/s",
        host.cores,
        host.clock_hz as f64 * f64::from(host.instructions_per_clock) / GIGA,
        rate(host.bytes_per_second),
        rate(host.sync_bytes_per_second)
    )
}
