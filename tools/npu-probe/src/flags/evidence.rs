// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe evidence`.

use std::path::PathBuf;

use clap::Args;

use super::FirstFlags;

/// Options of `evidence`.
#[derive(Debug, Args)]
pub(crate) struct EvidenceFlags {
    #[command(flatten)]
    pub(crate) first: FirstFlags,

    /// A language model for one prompt with llama.cpp
    #[arg(long, value_name = "FILE.gguf")]
    pub(crate) model: Option<PathBuf>,

    /// The program that runs it [default: llama-completion in PATH]
    #[arg(long, value_name = "PROGRAM", requires = "model")]
    pub(crate) llama: Option<PathBuf>,

    /// The driver suite [default: rocket-conformance beside npu-probe, or in PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) conformance: Option<PathBuf>,
}
