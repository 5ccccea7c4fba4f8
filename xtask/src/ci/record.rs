// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes what was measured into docs/testing.md, so that no figure there is
//! typed by hand.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use super::Outcome;
use crate::generated::replace_section;
use crate::paths;

/// Puts the table of durations (or the result of the long run) in its place.
pub(crate) fn write(outcomes: &[Outcome], long: bool) -> Result<()> {
    let path = paths::root().join("docs/testing.md");
    let page = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let section = if long { "ci-long" } else { "ci" };
    let page = replace_section(&page, section, &table(outcomes)?)?;
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

fn table(outcomes: &[Outcome]) -> Result<String> {
    let cores = thread::available_parallelism().context("counting cores")?;
    let mut text = format!(
        "Run on {} on {cores} cores ({}).\n\n| step | minutes | skips | result |\n|---|---|---|---|\n",
        today()?,
        std::env::consts::ARCH,
    );
    for outcome in outcomes {
        writeln!(
            text,
            "| {} | {:.1} | {} | {} |",
            outcome.name,
            outcome.took.as_secs_f64() / 60.0,
            outcome.skips.len(),
            outcome.failure.as_deref().unwrap_or("ok"),
        )?;
    }
    let total: f64 = outcomes.iter().map(|o| o.took.as_secs_f64()).sum();
    writeln!(text, "| all | {:.1} | | |", total / 60.0)?;
    Ok(text)
}

/// The date, as the machine's own `date` prints it: a calendar is not worth a
/// dependency.
fn today() -> Result<String> {
    let output = Command::new("date")
        .args(["--utc", "+%Y-%m-%d"])
        .output()
        .context("running date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
