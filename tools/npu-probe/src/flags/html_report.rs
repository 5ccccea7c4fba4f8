// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe report`.

use std::path::PathBuf;

use clap::Args;

/// Options of `report`.
#[derive(Debug, Args)]
pub(crate) struct HtmlReportFlags {
    /// Result files of npu-probe, recognised by their content
    ///
    /// Accepts the --json output of the self-test, `doctor`, `bench` and `calibrate`, profiles
    /// that `calibrate` wrote, and traces: of llama.cpp (GGML_ROCKET_TRACE), and of `run` and
    /// the self-test (--trace).
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,

    /// Write the page to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
