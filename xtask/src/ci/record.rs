// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes what was measured into docs/testing.md, so that no figure there is
//! typed by hand.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use super::outcome::StepOutcome;
use super::steps;
use crate::generated::replace_section;
use crate::paths;

/// Puts how the steps of CI, and those of the long run, ended into their tables.
pub(crate) fn write(outcomes: &[StepOutcome], long: bool) -> Result<()> {
    let path = paths::root().join("docs/testing.md");
    let mut page = paths::text(&path)?;
    let today = today()?;
    let usual: Vec<_> = steps::all(false).iter().map(|step| step.name).collect();
    // What the long run has in common with CI has its row there.
    let longer = steps::only_long();
    for (section, steps, is_longer) in [("ci", usual, false), ("ci-long", longer.clone(), true)] {
        let mut rows = rows(&page, section);
        let here = |outcome: &&StepOutcome| (long && longer.contains(&outcome.name)) == is_longer;
        for outcome in outcomes.iter().filter(here) {
            rows.retain(|row| row.name != outcome.name);
            rows.push(Row {
                name: outcome.name.to_owned(),
                date: today.clone(),
                minutes: outcome.took.as_secs_f64() / 60.0,
                skips: outcome.skips.len(),
                result: result(outcome),
            });
        }
        page = replace_section(&page, section, &table(&steps, &rows)?)?;
    }
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

/// How a step ended, and the figures that it told.
fn result(outcome: &StepOutcome) -> String {
    let mut parts = match &outcome.failure {
        // Within a cell of the table, on one line.
        Some(failure) => vec![format!(
            "{FAILED} {}",
            failure.replace('|', "/").replace('\n', " ")
        )],
        None => vec!["ok".to_owned()],
    };
    parts.extend(outcome.results.iter().cloned());
    parts.join("; ")
}

/// What the result of a step begins with that failed.
const FAILED: &str = "**failed**:";

/// What the page says of a step that has no row yet.
const NEVER: &str = "**never run**";

/// A line of the table.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    /// Day of the last run, in UTC: YYYY-MM-DD.
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

/// A row for each of `steps`, in their order, also for those that never ran; of
/// steps that are gone none.
fn table(steps: &[&str], rows: &[Row]) -> Result<String> {
    let cores = thread::available_parallelism().context("counting cores")?;
    let mut text = format!(
        "On {cores} cores ({}).\n\n| step | last run | minutes | skips | result |\n|---|---|---|---|---|\n",
        std::env::consts::ARCH,
    );
    let (mut total, mut failed, mut missing) = (0.0, 0, 0);
    for step in steps {
        let Some(row) = rows.iter().find(|row| row.name == *step) else {
            missing += 1;
            writeln!(text, "| {step} | | | | {NEVER} |")?;
            continue;
        };
        total += row.minutes;
        failed += usize::from(row.result.starts_with(FAILED));
        writeln!(
            text,
            "| {} | {} | {:.1} | {} | {} |",
            row.name, row.date, row.minutes, row.skips, row.result,
        )?;
    }
    let sum = match (failed, missing) {
        (0, 0) => "ok".to_owned(),
        _ => format!("**{failed} failed, {missing} never run**"),
    };
    writeln!(text, "| all | | {total:.1} | | {sum} |")?;
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
    use std::time::Duration;

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

    #[test]
    fn each_step_has_a_row_whatever_became_of_it() {
        let outcome = |name: &'static str, failure: Option<&str>| Row {
            name: name.to_owned(),
            date: "2026-02-03".into(),
            minutes: 0.5,
            skips: 0,
            result: result(&StepOutcome {
                name,
                failure: failure.map(str::to_owned),
                took: Duration::ZERO,
                skips: Vec::new(),
                external: Vec::new(),
                results: vec!["7 inputs".to_owned()],
            }),
        };
        let known = [
            outcome("soak", Some("`a | b`\nended")),
            outcome("gone", None),
            outcome("fmt", None),
        ];
        let table = table(&["fmt", "tsan", "soak"], &known).unwrap();
        let lines: Vec<_> = table.lines().skip(4).collect();
        assert_eq!(
            lines,
            [
                "| fmt | 2026-02-03 | 0.5 | 0 | ok; 7 inputs |",
                "| tsan | | | | **never run** |",
                "| soak | 2026-02-03 | 0.5 | 0 | **failed**: `a / b` ended; 7 inputs |",
                "| all | | 1.0 | | **1 failed, 1 never run** |",
            ]
        );
        // What is read back and written again stays.
        let page = format!("<!-- ci:begin -->\n{table}<!-- ci:end -->");
        let again = super::table(&["fmt", "tsan", "soak"], &rows(&page, "ci")).unwrap();
        assert_eq!(again, table);
    }
}
