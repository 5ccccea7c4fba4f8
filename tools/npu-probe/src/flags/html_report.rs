// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe report`.

use std::path::PathBuf;

use clap::Args;

/// Options of `report`.
#[derive(Debug, Args)]
pub(crate) struct HtmlReportFlags {
    /// Files of this program, told apart by what is in them
    ///
    /// What the self-test, `doctor`, `bench` and `calibrate` print with --json, profiles
    /// that `calibrate` writes, and traces: of llama.cpp by GGML_ROCKET_TRACE, of `run`
    /// or the self-test by --trace.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,

    /// Write the page here [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
