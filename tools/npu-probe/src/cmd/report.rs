// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe report`: renders files of other commands as one page.

use crate::exit::{Failure, Verdict};
use crate::flags::HtmlReportFlags;
use crate::html_report::{ReportInput, page};
use crate::output::{self, OutputFile};

pub(crate) fn run(args: &HtmlReportFlags) -> Result<Verdict, Failure> {
    let mut inputs = Vec::new();
    for file in &args.inputs {
        let input = ReportInput::read(file);
        inputs.push(input.map_err(Failure::usage(format!("cannot use {}", file.display())))?);
    }
    let page = page(&inputs);
    match &args.output {
        Some(file) => OutputFile::create(file)?.write(&page)?,
        None => output::print(&page)?,
    }
    Ok(Verdict::Pass)
}
