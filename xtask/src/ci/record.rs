// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes what was measured into docs/testing.md, so that no figure there is
//! typed by hand.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use super::{Outcome, steps};
use crate::generated::replace_section;
use crate::paths;

/// Puts the table of durations (or the result of the long run) in its place.
pub(crate) fn write(outcomes: &[Outcome], long: bool) -> Result<()> {
    let path = paths::root().join("docs/testing.md");
    let page = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let section = if long { "ci-long" } else { "ci" };
    let mut rows = rows(&page, section);
    let today = today()?;
    for outcome in outcomes {
        rows.retain(|row| row.name != outcome.name);
        rows.push(Row {
            name: outcome.name.to_owned(),
            date: today.clone(),
            minutes: outcome.took.as_secs_f64() / 60.0,
            skips: outcome.skips.len(),
            result: result(outcome),
        });
    }
    // In the order of CI, whatever was run last; steps that are gone go.
    let order: Vec<_> = steps::all(true).iter().map(|step| step.name).collect();
    rows.retain(|row| order.contains(&row.name.as_str()));
    rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
    let page = replace_section(&page, section, &table(&rows)?)?;
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

/// How a step ended, and the figures that it told.
fn result(outcome: &Outcome) -> String {
    let mut parts = vec![outcome.failure.as_deref().unwrap_or("ok")];
    parts.extend(outcome.results.iter().map(String::as_str));
    parts.join("; ")
}

/// A line of the table.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    /// When the step ran last.
    date: String,
    minutes: f64,
    skips: usize,
    result: String,
}

/// The rows that the page has now: a run of some steps only replaces theirs.
fn rows(page: &str, section: &str) -> Vec<Row> {
    let begin = format!("<!-- {section}:begin -->");
    let end = format!("<!-- {section}:end -->");
    let after = page.split_once(&begin).map_or("", |(_, rest)| rest);
    let table = after.split_once(&end).map_or("", |(table, _)| table);
    let row = |line: &str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        Some(Row {
            name: cells.next()?.to_owned(),
            date: cells.next()?.to_owned(),
            minutes: cells.next()?.parse().ok()?,
            skips: cells.next()?.parse().ok()?,
            result: cells.next()?.to_owned(),
        })
    };
    table.lines().filter_map(row).collect()
}

fn table(rows: &[Row]) -> Result<String> {
    let cores = thread::available_parallelism().context("counting cores")?;
    let mut text = format!(
        "On {cores} cores ({}).\n\n| step | last run | minutes | skips | result |\n|---|---|---|---|---|\n",
        std::env::consts::ARCH,
    );
    for row in rows {
        writeln!(
            text,
            "| {} | {} | {:.1} | {} | {} |",
            row.name, row.date, row.minutes, row.skips, row.result,
        )?;
    }
    let total: f64 = rows.iter().map(|row| row.minutes).sum();
    writeln!(text, "| all | | {total:.1} | | |")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back() {
        let page = "<!-- ci:begin -->\n| step | last run | minutes | skips | result |\n\
                    |---|---|---|---|---|\n| fmt | 2026-02-03 | 0.5 | 2 | ok |\n\
                    | all | | 0.5 | | |\n<!-- ci:end -->\n";
        let fmt = Row {
            name: "fmt".into(),
            date: "2026-02-03".into(),
            minutes: 0.5,
            skips: 2,
            result: "ok".into(),
        };
        assert_eq!(rows(page, "ci"), [fmt]);
        assert_eq!(rows(page, "ci-long"), []);
    }
}
