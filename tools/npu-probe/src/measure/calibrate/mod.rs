// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements of `npu-probe calibrate`, and the profile that they give.
//!
//! ```text
//! machine   clock, memory, start costs: tasks that have all run on silicon before
//! host      the CPU's kernels, INT8 jobs among them, cache maintenance
//! kernel    lines that the CPU wrote, new buffers, suspended cores
//! attention the CPU's own, if the user names a model for llama-bench
//! facts     experiments on contested facts, the risky ones last
//! tiles     tiles that grow beyond those that have run, until one is wrong or hangs
//! ```
//!
//! The software model's times are those of its timing model, so the same model always gives
//! the same profile. The host's CPU is then not measured.

pub(crate) mod attention;
pub(crate) mod facts;
mod host;
mod kernel;
mod machine;
mod tiles;
mod timed;

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use anyhow::Context;
use npu_matmul::Profile;
use npu_matmul::profile::{Board, HostCores, KernelTimes};
use npu_model::Opened;
use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;
use serde::{Deserialize, Serialize};

use crate::base::exit::Failure;
use crate::base::flags::planning::HERTZ_PER_MHZ;
use crate::base::output::{folder_of, try_write_whole};
use crate::base::sudo::{self, as_caller};
use crate::matmul::report::DeviceReport;
use facts::report::FactReport;

pub(crate) use tiles::extend as extend_tiles;

const GIGA: f64 = 1e9;
const PS_PER_US: f64 = 1e6;

/// Permissions of a profile: its owner reads and writes, others read.
const MODE: u32 = 0o644;

/// Measures everything that cannot hang a core, except the facts. `tell` prints progress and
/// results; `keep` gets the profile after each part, so that a failure loses no earlier part.
pub(crate) fn measured(
    opened: &Opened,
    tell: &impl Fn(&str),
    keep: &impl Fn(&Profile) -> Result<(), Failure>,
) -> Result<Profile, Failure> {
    let info = opened.device.info();
    let board = Board::of(&info);
    let mut profile = Profile::clone(&Profile::built_in());
    // Keeps the findings of `first`, so that the measurements avoid what failed there.
    let found = sudo::profile(&info).unwrap_or_else(|_| Profile::built_in());
    if found.board.is_some() {
        profile.choices = found.choices.clone();
        profile.facts = found.facts.clone();
        if !found.measured {
            profile.envelope = found.envelope.clone();
        }
    }
    profile.name = format!("{board}, calibration not complete").into();
    profile.board = Some(board);
    tell("clock, memory and start costs");
    profile.machine = machine::measure(opened, info.files(), tell).map_err(Failure::Device)?;
    tell(&format!("  {}", machine_line(&profile.machine)));
    keep(&profile)?;
    if !info.is_model {
        tell("CPU kernels");
        profile.host = host::measure(&opened.device).map_err(Failure::Device)?;
        tell(&format!("  {}", host_line(&profile.host)));
        let macs = host::int8_macs_per_second(profile.host.cores).map_err(Failure::Device)?;
        tell(&format!(
            "  {:.1} G multiply-adds a second in INT8 jobs",
            macs as f64 / GIGA
        ));
        profile.int8_macs_per_second = Some(macs);
        keep(&profile)?;
        tell("the kernel's times");
        profile.kernel = kernel::measure(opened).map_err(Failure::Device)?;
        tell(&format!("  {}", kernel_line(&profile.kernel)));
        keep(&profile)?;
    }
    Ok(profile)
}

/// Whether `file` has the profile of a calibration of this board that was not interrupted.
pub(crate) fn is_whole(file: &Path, info: &DeviceInfo) -> bool {
    let profile = Profile::find_in(Some(file.to_owned()), info);
    profile.is_ok_and(|profile| profile.measured)
}

/// Marks a profile whose parts are all there.
pub(crate) fn complete(profile: &mut Profile) {
    let how = match &profile.board {
        Some(board) if board.is_model => format!("{board}, modelled"),
        Some(board) => format!("{board}, calibrated"),
        None => return,
    };
    profile.name = how.into();
    profile.measured = true;
}

/// Writes the whole file of a profile or nothing: the old content took long to measure.
pub(crate) fn write(file: &Path, profile: &Profile) -> Result<(), Failure> {
    let write = || -> anyhow::Result<()> {
        let json = profile.to_json().context("too many plans")?;
        Profile::from_json(json.as_bytes()).context(
            "the measurements contradict each other; stop other users of the NPU and \
             try again",
        )?;
        // Writes through a symbolic link instead of replacing it.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        fs::create_dir_all(folder_of(&file)).context("cannot create its folder")?;
        try_write_whole(&file, json.as_bytes(), MODE)
    };
    as_caller(write).map_err(Failure::output(format!(
        "cannot write the profile {}",
        file.display()
    )))
}

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
    /// The verdict, the number of facts for each outcome, and the profile.
    pub(crate) fn text(&self) -> String {
        let kinds = self
            .facts
            .iter()
            .map(|fact| fact.outcome.kind_and_result().0);
        let [neither, not_run] =
            ["neither", "not run"].map(|kind| kinds.clone().filter(|own| *own == kind).count());
        let other = self.facts.iter().filter(|fact| fact.differs()).count() - neither;
        let all = self.facts.len();
        let expected = all - other - neither - not_run;
        let verdict = match (neither, other) {
            (0, 0) => "every experiment gave the software model's result".to_owned(),
            (0, other) => format!("{other} experiments differ from the model's default"),
            (neither, _) => format!(
                "{neither} experiments gave a result that no source predicts; please run \
                 `npu-probe evidence` and send its archive"
            ),
        };
        let mut text = format!(
            "verdict    {verdict}\n\
             facts      of {all}: {expected} same as the model's default, {other} different, {neither} \
             neither\n\
             left out   {not_run} not run (-v names them)\n"
        );
        if let (Some(profile), Some(file)) = (&self.profile, &self.file) {
            let (machine, name) = (machine_line(&profile.machine), &profile.name);
            let how = if self.device.is_model {
                "modelled"
            } else {
                "measured"
            };
            text += &format!("{how:9}  {machine}\nprofile    {name} in {file}\n");
        }
        text
    }
}

/// Clock, bandwidth and costs, in one line.
fn machine_line(machine: &Machine) -> String {
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

/// Cores and bandwidths of the CPU, in one line.
fn host_line(host: &HostCores) -> String {
    let rate = |bytes: u64| bytes as f64 / GIGA;
    format!(
        "{} cores at {:.2} instructions per ns each, memory {:.2} GB/s, caches {:.2} GB/s",
        host.cores,
        host.clock_hz as f64 * f64::from(host.instructions_per_clock) / GIGA,
        rate(host.bytes_per_second),
        rate(host.sync_bytes_per_second)
    )
}

/// The kernel's rates and the start of a suspended core, in one line.
fn kernel_line(kernel: &KernelTimes) -> String {
    let rate = |bytes: Option<u64>| bytes.unwrap_or_default() as f64 / GIGA;
    format!(
        "caches with written lines {:.2} GB/s, new buffers {:.2} GB/s, a suspended core starts \
         {:.0} us later",
        rate(kernel.dirty_sync_bytes_per_second),
        rate(kernel.first_touch_bytes_per_second),
        kernel.resume_ps.unwrap_or_default() as f64 / PS_PER_US
    )
}
