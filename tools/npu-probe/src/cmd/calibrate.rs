// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe calibrate`: measures this board and saves its profile.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use npu_matmul::Profile;
use npu_offload::ModelShape;

use super::model::shape::shape;
use crate::base::exit::{Failure, Verdict};
use crate::base::flags::{DeviceFlags, ReportFlags};
use crate::base::progress::ProgressLine;
use crate::base::{output, sudo};
use crate::matmul::gguf::GgufModel;
use crate::matmul::report::DeviceReport;
use crate::measure::calibrate::facts::report::FactReport;
use crate::measure::calibrate::{self, CalibrateReport, attention, facts};

#[derive(Debug, Args)]
pub(crate) struct CalibrateFlags {
    /// Write the profile to this file [default: rocket-npu/profile.json in the user's
    /// configuration]
    #[arg(long, alias = "out", value_name = "FILE", conflicts_with = "facts")]
    profile: Option<PathBuf>,

    /// Also measure the CPU's attention: run llama-bench, which must be in PATH, with this model
    #[arg(long, value_name = "FILE", conflicts_with = "facts")]
    model: Option<PathBuf>,

    /// Check only these contested facts, by name or `all`, and write no profile
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    facts: Vec<String>,

    /// Also run experiments that may hang a core
    ///
    /// A hung job blocks its core for half a second, until the driver resets it. Other users
    /// of the NPU wait. Some sources say that a core may then need a power cycle: save your
    /// work, and be ready to reboot.
    #[arg(long)]
    risky: bool,

    /// Show the outcome of each contested fact, not only those that differ from the model
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    device: DeviceFlags,

    #[command(flatten)]
    report: ReportFlags,
}

/// The file of a model, and its shape.
fn shape_of(file: &Path) -> Result<(&Path, ModelShape), Failure> {
    let shape = || {
        let (shape, _) = shape(&GgufModel::read(file)?).map_err(anyhow::Error::msg)?;
        Ok::<_, anyhow::Error>(shape)
    };
    let shape = shape().map_err(Failure::usage(file.display().to_string()))?;
    Ok((file, shape))
}

pub(crate) fn run(args: &CalibrateFlags) -> Result<Verdict, Failure> {
    // Reports misspelt names before anything runs.
    let chosen = facts::choose(&args.facts)?;
    let is_whole = args.facts.is_empty();
    let file = args.profile.clone().or_else(sudo::users_profile);
    let file = file.filter(|_| is_whole);
    if is_whole && file.is_none() {
        return Err(Failure::Usage(anyhow!(
            "HOME is not set, so the profile has no default path; use --profile FILE"
        )));
    }
    // A model that cannot be measured with is refused before anything runs.
    let model = args.model.as_deref().map(shape_of).transpose()?;
    let opened = super::open(&args.device)?;
    let device = DeviceReport::new(opened.device.info(), opened.why.clone());
    let progress = ProgressLine::endless("calibrating");
    let say = |text: &str| progress.aside(|| args.report.say(text));
    let tell = |text: &str| progress.aside(|| output::tell(&format!("{text}\n")));
    say(&device.text())?;
    let mut profile = None;
    let info = opened.device.info();
    let had_whole = file
        .as_ref()
        .is_some_and(|file| calibrate::is_whole(file, &info));
    let keep = |profile: &Profile| match &file {
        // A part does not replace the whole of an earlier calibration.
        Some(file) if profile.measured || !had_whole => calibrate::write(file, profile),
        _ => Ok(()),
    };
    if file.is_some() {
        let mut measured = calibrate::measured(&opened, &tell, &keep)?;
        // The software model's times are modelled, the CPU's with them.
        if let Some((file, shape)) = model.filter(|_| !info.is_model) {
            tell("attention on the CPU");
            let rate = attention::measure(file, &shape).map_err(Failure::Device)?;
            tell(&format!(
                "  {:.1} G multiply-adds a second",
                rate as f64 / 1e9
            ));
            measured.attention_macs_per_second = Some(rate);
            keep(&measured)?;
        }
        profile = Some(measured);
        tell("contested facts");
    }
    progress.doing("running experiments");
    let facts = facts::settle(&opened.device, &chosen, args.risky, |fact| {
        if let (Some(profile), Some(settled)) = (&mut profile, fact.verdict()) {
            profile.facts.retain(|fact| fact.id != settled.id);
            profile.facts.push(settled);
            keep(profile)?;
        }
        if args.verbose || !is_whole || fact.differs() {
            say(&fact.text())?;
        }
        Ok(())
    })?;
    if let Some(profile) = &mut profile {
        calibrate::extend_tiles(profile, &opened.device, &tell, &keep)?;
        calibrate::complete(profile);
        keep(profile)?;
    }
    drop(progress);
    let report = CalibrateReport {
        settled: !facts.iter().any(FactReport::matches_no_side),
        version: env!("CARGO_PKG_VERSION").into(),
        device,
        facts,
        profile,
        file: file.map(|file| file.display().to_string()),
    };
    args.report.print(&report, || report.text())?;
    Ok(Verdict::of(report.settled))
}
