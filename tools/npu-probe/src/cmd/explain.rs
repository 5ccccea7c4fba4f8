// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe explain`: judges an archive again, far from its board.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::exit::{Failure, Verdict};
use crate::first::FirstResults;
use crate::flags::ExplainFlags;

/// Most bytes of a file of an archive, and of all of them.
const FILE_MAX: u64 = 64 << 20;
const ALL_MAX: u64 = 512 << 20;

pub(crate) fn run(args: &ExplainFlags) -> Result<Verdict, Failure> {
    let results = unpack(&args.archive).map_err(Failure::usage(format!(
        "{} is no archive of `first`",
        args.archive.display()
    )))?;
    let report = results.judge(true).map_err(Failure::Usage)?;
    args.report.print(&report, || report.text())?;
    Ok(report.exit())
}

/// Records and the index of an archive, in memory: nothing is written.
fn unpack(archive: &Path) -> anyhow::Result<FirstResults> {
    let file = File::open(archive)?;
    let mut archive = tar::Archive::new(GzDecoder::new(file).take(ALL_MAX));
    let mut results = FirstResults::default();
    for entry in archive.entries()? {
        let entry = entry?;
        let name = entry.path()?.display().to_string();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        if !FirstResults::reads(&name) {
            continue;
        }
        let mut text = Vec::new();
        entry.take(FILE_MAX).read_to_end(&mut text)?;
        results.add(&name, &text)?;
    }
    anyhow::ensure!(!results.is_empty(), "there is no rung in it");
    Ok(results)
}
