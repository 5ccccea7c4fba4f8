// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe evidence`.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceFlags, ReportFlags};

/// Options of `evidence`.
#[derive(Debug, Args)]
pub(crate) struct EvidenceFlags {
    /// Directory of the results, and of the archive that is made of them
    #[arg(short, long, value_name = "DIR", default_value = "npu-evidence")]
    pub(crate) output: PathBuf,

    /// A language model for one prompt with llama.cpp
    #[arg(long, value_name = "FILE.gguf")]
    pub(crate) model: Option<PathBuf>,

    /// The program that runs it [default: llama-completion in PATH]
    #[arg(long, value_name = "PROGRAM", requires = "model")]
    pub(crate) llama: Option<PathBuf>,

    /// The driver suite [default: rocket-conformance beside npu-probe, or in PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) conformance: Option<PathBuf>,

    /// Run again what failed, was killed, or took the machine down
    #[arg(long)]
    pub(crate) retry: bool,

    /// Kill what takes longer than this [default: 2 to 30 minutes, by the step]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) limit: Option<u64>,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
