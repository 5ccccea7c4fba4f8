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
