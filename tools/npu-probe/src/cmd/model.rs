// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe model`: memory use and speed of a GGUF model, predicted from its head.
//!
//! [`npu_offload`] decides. This module converts a file's head into the inputs of
//! `npu_offload`, and the decisions into tables.

pub(super) mod shape;
mod speed;
mod text;
mod weights;

use std::path::{Path, PathBuf};

use clap::Args;
use npu_matmul::memory::{MemoryPlan, MemoryShares};
use npu_matmul::profile::CostSide;
use npu_offload::{AvailableMemory, OffloadRules, PlanTarget};
use rknpu_regcmd::timing::seconds;
use rocket_uapi::DeviceInfo;
use serde::Serialize;

use crate::base::exit::{Failure, Verdict};
use crate::base::flags::planning::MachineFlags;
use crate::base::flags::{DeviceFlags, ReportFlags};
use crate::base::progress::ProgressLine;
use crate::matmul::gguf::GgufModel;
use speed::SpeedReport;
use weights::WeightGroup;

#[derive(Debug, Args)]
pub(crate) struct GgufFlags {
    /// The model, a GGUF file; of a split model, any part
    file: PathBuf,

    /// Memory limit for packed weights and matmuls: bytes, or with K, M or G [default: like the backend
    /// for llama.cpp, half of what is available now]
    ///
    /// The backend reads the same limit from GGML_ROCKET_MEM.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    mem: Option<u64>,

    #[command(flatten)]
    machine: MachineFlags,

    #[command(flatten)]
    device: DeviceFlags,

    #[command(flatten)]
    report: ReportFlags,
}

fn bytes(text: &str) -> Result<u64, String> {
    let wanted = || "expected a number of bytes, such as 2147483648, 2048M or 2G".to_owned();
    npu_offload::parse_bytes(text).ok_or_else(wanted)
}

/// The report of `model`, printed as text or as JSON.
#[derive(Debug, Serialize)]
struct ModelReport {
    architecture: String,
    files: usize,
    tensors: usize,
    /// Bytes of all tensors of known types.
    file_bytes: u64,
    /// Name of the board's profile, and its NPU clock.
    profile: String,
    clock_mhz: u64,
    /// The board that times were measured on; none if all times are modelled.
    calibrated_on: Option<String>,
    /// Whether the profile is the software model's.
    #[serde(skip)]
    is_profile_modelled: bool,
    /// Why an existing profile is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_refused: Option<String>,
    fds: usize,
    /// Memory limit of packed weights and matmuls; none if unknown.
    budget_bytes: Option<u64>,
    /// Whether the command line set it.
    is_budget_given: bool,
    /// Whether all weights that the NPU can use fit.
    fits: bool,
    /// Bytes of the packed weights on the NPU.
    packed_bytes: u64,
    /// Seconds in which the kernel provides the buffers of packed weights and the CPU first writes
    /// them: likely, and at best.
    first_touch_s: [f64; 2],
    weights: Vec<WeightGroup>,
    speed: Option<SpeedReport>,
    /// Why the speed of the whole graph is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed_unknown: Option<String>,
}

pub(crate) fn run(args: &GgufFlags) -> Result<Verdict, Failure> {
    let progress = ProgressLine::endless(&format!("planning {}", args.file.display()));
    let model = GgufModel::read(&args.file)
        .and_then(|model| weights::check(&model).map(|()| model))
        .map_err(Failure::usage(args.file.display().to_string()))?;
    let info = super::open(&args.device)?.device.info();
    let report = report(&model, args, &info);
    drop(progress);
    args.report.print(&report, || report.text())?;
    Ok(Verdict::Pass)
}

fn report(model: &GgufModel, args: &GgufFlags, info: &DeviceInfo) -> ModelReport {
    // Users ask about a board, not about the software model.
    let (options, profile_refused) = args.machine.as_npu().options(info);
    let rules = OffloadRules::new(PlanTarget::new(options.files(info), options));
    let available = || AvailableMemory::below(Path::new("/"));
    let budget_bytes = args.mem.or_else(|| Some(available()?.default_budget()));
    let limit = budget_bytes.unwrap_or(u64::MAX);
    let shares = MemoryShares::of(limit);
    let mut memory = MemoryPlan::new(rules.target.fds, shares, rules.target.options());
    let weights = weights::place_all(model, &rules, &mut memory);
    let speed = || -> Result<SpeedReport, String> {
        let (shape, context) = shape::shape(model)?;
        let graph = weights::of_graph(&weights)?;
        Ok(SpeedReport::new(shape, context, &graph, &rules))
    };
    let (speed, speed_unknown) = match speed() {
        Ok(speed) => (Some(speed), None),
        Err(why) => (None, Some(why)),
    };
    let profile = &rules.target.options().profile;
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
        is_profile_modelled: profile.board.as_ref().is_some_and(|board| board.is_model),
        profile_refused,
        fds: rules.target.fds,
        budget_bytes,
        is_budget_given: args.mem.is_some(),
        fits: weights.iter().all(WeightGroup::fits),
        packed_bytes: memory.total(),
        first_touch_s: [CostSide::Likely, CostSide::Upper].map(|side| {
            let target = rules.target.on(side);
            seconds(target.first_touch_ps(memory.total()))
        }),
        weights,
        speed,
        speed_unknown,
    }
}
