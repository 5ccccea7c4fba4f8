// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe diff`: differences of two captures.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use npu_capture::diff;
use serde::Serialize;

use crate::capture_file::{self, CaptureFlags};
use crate::exit::{Failure, Verdict};
use crate::flags::ReportFlags;

#[derive(Debug, Args)]
pub(crate) struct DiffFlags {
    /// Capture file
    first: PathBuf,

    /// Capture file to compare it with
    second: PathBuf,

    #[command(flatten)]
    capture: CaptureFlags,

    #[command(flatten)]
    report: ReportFlags,
}

/// Most differences that are listed.
const SHOWN: usize = 1000;

/// The `--json` output.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Number of all differences, including those that are not listed.
    count: usize,
    /// The first of them: both captures' values, separated by a bar.
    differences: Vec<String>,
}

pub(crate) fn run(files: &DiffFlags) -> Result<Verdict, Failure> {
    let first = capture_file::open(&files.first, files.capture)?;
    let second = capture_file::open(&files.second, files.capture)?;
    let mut report = Report::default();
    diff(&first, &second, &mut |change| {
        report.count += 1;
        if report.differences.len() < SHOWN {
            report.differences.push(change.to_string());
        }
    })
    .map_err(|error| Failure::Usage(anyhow!("cannot compare the captures: {error}")))?;
    files.report.print(&report, || report.text())?;
    Ok(Verdict::of(report.count == 0))
}

impl Report {
    fn text(&self) -> String {
        let mut text = self.differences.join("\n");
        if self.count > self.differences.len() {
            let more = self.count - self.differences.len();
            text += &format!("\nand {more} more");
        }
        if self.count == 0 {
            text += "no differences";
        }
        text + "\n"
    }
}
