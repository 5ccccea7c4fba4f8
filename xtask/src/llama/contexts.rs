// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: 64 contexts of one process, computed from several threads at once,
//! and contexts that come and go leave nothing behind.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::hosts;
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::process;
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "contexts";
const LIMIT: Duration = Duration::from_secs(120);
/// What the program prints of its contexts, all of which computed well.
const GOOD: [&str; 2] = ["together 64 of 64", "rounds 256 of 256"];
/// KiB that the process may grow by in 56 rounds of four contexts. The packed
/// weights of one context are 224 KiB, so that one lost in each round is 12544;
/// the C library's own reserves for threads come to some thousand.
const GROWTH: u64 = 8192;
/// Open files that it may have more of by then: working buffers are kept for as
/// many products as ever were computed at the same time, which four threads
/// need not do in the first rounds. One file lost in each round would be 56.
const MORE_FILES: u64 = 16;

pub(super) fn check(stock: &Stock) -> Result<CheckVerdict> {
    let program = hosts::compile(stock.arch(), "ggml_contexts")?;
    let mut command = stock.program(&program, &[], Backend::With);
    command.arg(stock.ggml_library());
    let output = process::run(command, LIMIT)?;
    let text = output.text();
    let output = output
        .checked("ggml_contexts")
        .with_context(|| text.lines().last().unwrap_or_default().to_owned())?;
    let (growth, files) = judge(&text)?;
    let products = StatsTable::find(&output.stderr)?.offloaded("fp16")?;
    Ok(CheckVerdict::Pass(format!(
        "{}, {}, with {products} products; {growth} KiB more after round 64 than after round 8, and \
         {files} open files then",
        GOOD[0], GOOD[1]
    )))
}

/// Memory and open files that the process had at one time.
struct Holdings {
    kib: u64,
    files: u64,
}

/// Judges what the program wrote: by how much it grew, and its open files.
fn judge(text: &str) -> Result<(u64, u64)> {
    ensure!(text.ends_with("end\n"), "the output has no end: {text}");
    for line in GOOD {
        ensure!(
            text.lines().any(|other| other == line),
            "expected {line:?}: {text}"
        );
    }
    let (early, late) = (after(text, 8)?, after(text, 64)?);
    ensure!(
        late.files <= early.files + MORE_FILES,
        "{} open files after round 64, {} after round 8",
        late.files,
        early.files
    );
    let growth = late.kib.saturating_sub(early.kib);
    ensure!(
        growth <= GROWTH,
        "the process grew by {growth} KiB from round 8 to round 64"
    );
    Ok((growth, late.files))
}

/// Reads what the process had after a round.
fn after(text: &str, round: u32) -> Result<Holdings> {
    let beginning = format!("after {round}: ");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&beginning))
        .with_context(|| format!("no line {beginning:?}: {text}"))?;
    let mut numbers = line
        .split_whitespace()
        .filter_map(|word| word.parse::<u64>().ok());
    let (Some(kib), Some(files)) = (numbers.next(), numbers.next()) else {
        bail!("expected two numbers: {line}");
    };
    Ok(Holdings { kib, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "together 64 of 64\nafter 8: 61744 KiB, 40 files\n\
                        after 64: 64060 KiB, 40 files\nrounds 256 of 256\nend\n";

    #[test]
    fn what_stays_behind_is_seen() {
        assert_eq!(judge(TEXT).unwrap(), (2316, 40));
        for (what, with) in [
            ("64 of 64", "63 of 64"),
            ("256 of 256", "255 of 256"),
            ("64060 KiB, 40", "64060 KiB, 96"),
            ("64060", "74288"),
            ("after 8: 61744 KiB, 40 files\n", ""),
            ("end\n", ""),
        ] {
            let bad = TEXT.replacen(what, with, 1);
            assert_ne!(bad, TEXT);
            assert!(judge(&bad).is_err(), "{what} -> {with}");
        }
    }
}
