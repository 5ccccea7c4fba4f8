// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `calibrate`, as text and as JSON.

use std::borrow::Cow;

use npu_matmul::Profile;
use npu_matmul::profile::HostCores;
use rknpu_regcmd::timing::Machine;
use serde::{Deserialize, Serialize};

use super::facts::report::FactReport;
use crate::flags::planning::HERTZ_PER_MHZ;
use crate::report::DeviceReport;

const GIGA: f64 = 1e9;
const PS_PER_US: f64 = 1e6;

/// The report of `calibrate`, as printed with `--json`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct CalibrateReport {
    /// Whether every experiment matched some side.
    pub(crate) settled: bool,
    /// Version of this tool, and so of its experiments and its model.
    pub(crate) version: Cow<'static, str>,
    pub(crate) device: DeviceReport,
    pub(crate) facts: Vec<FactReport>,
    /// The profile, unless only facts were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<Profile>,
    /// The file of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

impl CalibrateReport {
    fn count(&self, kind: &str) -> usize {
        let facts = self.facts.iter();
        let kinds = facts.map(|fact| fact.outcome.kind_and_result().0);
        kinds.filter(|own| *own == kind).count()
    }

    /// The verdict, the number of facts for each outcome, and the profile.
    pub(crate) fn text(&self) -> String {
        let [neither, not_run, impossible] =
            ["neither", "not run", "impossible"].map(|kind| self.count(kind));
        let other = self.facts.iter().filter(|fact| fact.differs()).count() - neither;
        let all = self.facts.len();
        let expected = all - other - neither - not_run - impossible;
        let verdict = match (neither, other) {
            (0, 0) => "every experiment gave the software model's result".to_owned(),
            (0, other) => {
                format!("{other} experiments differ from the model's default")
            }
            (neither, _) => format!(
                "{neither} experiments gave a result that no source predicts; please run \
                 `npu-probe evidence` and send its archive"
            ),
        };
        let mut text = format!(
            "verdict    {verdict}\n\
             facts      of {all}: {expected} same as the model's default, {other} different, {neither} \
             neither\n\
             left out   {not_run} not run, {impossible} not possible here (-v names them)\n"
        );
        if let (Some(profile), Some(file)) = (&self.profile, &self.file) {
            let (machine, name) = (machine(&profile.machine), &profile.name);
            text += &format!("measured   {machine}\nprofile    {name} in {file}\n");
        }
        text
    }
}

/// A line about the machine.
pub(super) fn machine(machine: &Machine) -> String {
    let driver = &machine.driver;
    let us = |ps: u64| ps as f64 / PS_PER_US;
    format!(
        "{} MHz; {:.2} GB/s for one core, at most {:.2} GB/s for all; {:.1} us for each job, \
         {:.1} us for each task",
        machine.clock_hz / HERTZ_PER_MHZ,
        machine.dram.rate(machine.clock_hz, 1) as f64 / GIGA,
        machine.dram.shared_bytes_per_second as f64 / GIGA,
        us(driver.submit_ps + driver.attach_ps + driver.wake_ps),
        us(driver.kick_ps)
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
