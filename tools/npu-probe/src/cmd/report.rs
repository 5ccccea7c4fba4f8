// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe report`: renders files of other commands as one page.

use std::path::PathBuf;

use clap::Args;

use crate::base::exit::{Failure, Verdict};
use crate::base::output;
use crate::measure::html_report::{ReportInput, page};

#[derive(Debug, Args)]
pub(crate) struct HtmlReportFlags {
    /// Result files of npu-probe, recognised by their content
    ///
    /// Accepts the --json output of the self-test, `doctor`, `bench` and `calibrate`, profiles
    /// that `calibrate` wrote, and traces: of llama.cpp (GGML_ROCKET_TRACE), and of `run` and
    /// the self-test (--trace).
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,

    /// Write the page to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &HtmlReportFlags) -> Result<Verdict, Failure> {
    let mut inputs = Vec::new();
    for file in &args.inputs {
        let input = ReportInput::read(file);
        inputs.push(input.map_err(Failure::usage(format!("cannot use {}", file.display())))?);
    }
    let page = page(&inputs);
    match &args.output {
        Some(file) => output::writer(file)?(&page)?,
        None => output::print(&page)?,
    }
    Ok(Verdict::Pass)
}
