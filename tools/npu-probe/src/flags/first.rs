// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe first`, `rung`, `explain` and `evidence`.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceFlags, ReportFlags};

/// Options of `first`, which `evidence` has too.
#[derive(Debug, Args)]
pub(crate) struct FirstFlags {
    /// Directory of the results and of the archive
    #[arg(short, long, value_name = "DIR", default_value = "npu-evidence")]
    pub(crate) output: PathBuf,

    /// Repeat steps that failed, were killed, or crashed the machine
    #[arg(long)]
    pub(crate) retry: bool,

    /// Kill a step after this time, seconds [default: 120 or 1800, by the step]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) limit: Option<u64>,

    /// Write the profile to this file, if the board must avoid something [default:
    /// rocket-npu/profile.json in the user's configuration]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Options of `rung`.
#[derive(Debug, Args)]
pub(crate) struct RungFlags {
    /// Name of the experiment
    pub(crate) name: String,

    /// Run the parent experiment's program instead, once for each register that differs
    #[arg(long)]
    pub(crate) flip: bool,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainFlags {
    /// Archive that `first` or `evidence` wrote
    pub(crate) archive: PathBuf,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Options of `evidence`.
#[derive(Debug, Args)]
pub(crate) struct EvidenceFlags {
    #[command(flatten)]
    pub(crate) first: FirstFlags,

    /// Run one prompt of this language model with llama.cpp
    #[arg(long, value_name = "FILE.gguf")]
    pub(crate) model: Option<PathBuf>,

    /// The llama.cpp program to run it with [default: llama-completion in PATH]
    #[arg(long, value_name = "PROGRAM", requires = "model")]
    pub(crate) llama: Option<PathBuf>,

    /// The driver suite [default: rocket-conformance beside npu-probe, or in PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) conformance: Option<PathBuf>,
}
