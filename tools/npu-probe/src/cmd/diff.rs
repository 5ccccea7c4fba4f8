// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe decode` of two captures: their differences.

use std::path::Path;

use anyhow::anyhow;
use npu_capture::diff;
use serde::Serialize;

use crate::base::capture_file;
use crate::base::exit::{Failure, Verdict};
use crate::base::flags::DecodeFlags;

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

pub(super) fn run(decode: &DecodeFlags, other: &Path) -> Result<Verdict, Failure> {
    let first = capture_file::open(decode.file(), decode.capture)?;
    let second = capture_file::open(other, decode.capture)?;
    let mut report = Report::default();
    diff(&first, &second, &mut |change| {
        report.count += 1;
        if report.differences.len() < SHOWN {
            report.differences.push(change.to_string());
        }
    })
    .map_err(|error| Failure::Usage(anyhow!("cannot compare the captures: {error}")))?;
    decode.report.print(&report, || report.text())?;
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
