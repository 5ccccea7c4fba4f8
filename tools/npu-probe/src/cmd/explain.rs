// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe explain`: judges the archive of a board again, on any machine.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::read::GzDecoder;

use crate::base::exit::{Failure, Verdict};
use crate::base::flags::ReportFlags;
use crate::board::first::{FirstReport, FirstResults};

#[derive(Debug, Args)]
pub(crate) struct ExplainFlags {
    /// Archive that `first` or `evidence` wrote
    archive: PathBuf,

    #[command(flatten)]
    report: ReportFlags,
}

/// Most bytes of one file of an archive, and of all its files.
const FILE_MAX: u64 = 64 << 20;
const ALL_MAX: u64 = 512 << 20;

pub(crate) fn run(args: &ExplainFlags) -> Result<Verdict, Failure> {
    let results = unpack(&args.archive).map_err(Failure::usage(format!(
        "{} is not an archive of `first` or `evidence`",
        args.archive.display()
    )))?;
    let report = FirstReport::of(&results, true).map_err(Failure::Usage)?;
    args.report.print(&report, || report.text())?;
    Ok(report.exit())
}

/// Reads the records and the index of an archive into memory; writes nothing.
fn unpack(archive: &Path) -> anyhow::Result<FirstResults> {
    let file = File::open(archive)?;
    let mut archive = tar::Archive::new(GzDecoder::new(file).take(ALL_MAX));
    let mut texts = BTreeMap::new();
    for entry in archive.entries()? {
        let entry = entry?;
        let name = entry.path()?.display().to_string();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        if !FirstResults::reads(&name) {
            continue;
        }
        let mut text = Vec::new();
        entry.take(FILE_MAX).read_to_end(&mut text)?;
        texts.insert(name, text);
    }
    // By name, so that the index comes before the records, in whatever order they were packed.
    let mut results = FirstResults::default();
    for (name, text) in &texts {
        results.add(name, text)?;
    }
    anyhow::ensure!(!results.is_empty(), "the archive contains no rung");
    Ok(results)
}
