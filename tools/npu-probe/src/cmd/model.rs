// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe model`: what a language model would gain, before it is loaded.
//!
//! What is decided, and in which order, is [`npu_offload`]'s; here a file's head is turned into
//! its questions, and the answers into tables.

mod shape;
mod speed;
mod text;
mod weights;

use std::path::Path;

use anyhow::Context;
use npu_offload::{OffloadRules, PlanTarget, default_budget};
use rocket_uapi::DeviceInfo;
use serde::Serialize;

use crate::exit::{Failure, Verdict};
use crate::flags::GgufFlags;
use crate::gguf::{GgufError, GgufModel};
use crate::progress::ProgressLine;
use speed::SpeedReport;
use weights::{PlacedWeights, WeightGroup};

/// The report of `model`, which is printed as text or as JSON.
#[derive(Debug, Serialize)]
struct ModelReport {
    architecture: String,
    /// Number of files.
    files: usize,
    tensors: usize,
    /// Of all tensors whose type is known.
    file_bytes: u64,
    /// Name of the board's profile, and its clock of the NPU.
    profile: String,
    clock_mhz: u64,
    /// The board that times were measured on; none if nothing was.
    calibrated_on: Option<String>,
    /// Why the profile that there is is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_refused: Option<String>,
    fds: usize,
    /// What packed weights may take; none if nobody says.
    budget_bytes: Option<u64>,
    /// Whether the command line said so.
    is_budget_given: bool,
    /// Whether all weights that could be on the NPU may be.
    fits: bool,
    /// What those take that may.
    packed_bytes: u64,
    weights: Vec<WeightGroup>,
    speed: Option<SpeedReport>,
    /// Why the speed of the whole graph is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed_unknown: Option<String>,
}

pub(crate) fn run(args: &GgufFlags) -> Result<Verdict, Failure> {
    let progress = ProgressLine::endless(&format!("planning {}", args.file.display()));
    let read = || {
        let model = GgufModel::read(&args.file)?;
        weights::check(&model)?;
        Ok::<_, GgufError>(model)
    };
    let model = read()
        .with_context(|| args.file.display().to_string())
        .map_err(Failure::Usage)?;
    let info = super::open(&args.device)?.device.info();
    let report = report(&model, args, &info);
    drop(progress);
    args.report.print(&report, || report.text())?;
    Ok(Verdict::Pass)
}

fn report(model: &GgufModel, args: &GgufFlags, info: &DeviceInfo) -> ModelReport {
    // What runs on the software model is not what the user wants to know.
    let (options, profile_refused) = args.machine.as_npu().options(info);
    // One for each core, as the backend opens them.
    let fds = usize::try_from(info.cores).unwrap_or(1).max(1);
    let rules = OffloadRules::new(PlanTarget::new(fds, options));
    let budget_bytes = args.mem.or_else(|| default_budget(Path::new("/")));
    let placed = PlacedWeights::new(model, &rules, budget_bytes.unwrap_or(u64::MAX));
    let speed = shape::shape(model)
        .and_then(|(shape, context)| Ok((shape, context, placed.of_graph()?)))
        .map(|(shape, context, weights)| SpeedReport::new(shape, context, &weights, &rules));
    let (speed, speed_unknown) = match speed {
        Ok(speed) => (Some(speed), None),
        Err(why) => (None, Some(why)),
    };
    let profile = &rules.target.options.profile;
    ModelReport {
        architecture: shape::architecture(model).to_owned(),
        files: model.parts,
        tensors: model.tensors.len(),
        file_bytes: model.tensors.iter().filter_map(|one| one.bytes()).sum(),
        profile: profile.name.to_string(),
        clock_mhz: rules.target.megahertz(),
        calibrated_on: profile
            .board
            .as_ref()
            .filter(|_| profile.is_calibrated())
            .map(ToString::to_string),
        profile_refused,
        fds,
        budget_bytes,
        is_budget_given: args.mem.is_some(),
        fits: placed.groups.iter().all(WeightGroup::fits),
        packed_bytes: placed.bytes,
        weights: placed.groups,
        speed,
        speed_unknown,
    }
}
