// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the results of the steps into docs/testing.md, so that nobody types figures by hand.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::outcome::StepOutcome;
use super::steps::{self, CiStep};
use crate::generated::{replace_section, section};
use crate::paths;

/// Puts the rows of `outcomes` into the table of CI. Steps that only the long run has go into a
/// separate table.
pub(super) fn write(outcomes: &[StepOutcome]) -> Result<()> {
    let path = paths::root().join("docs/testing.md");
    let mut page = paths::text(&path)?;
    let date = Command::new("date")
        .args(["--utc", "+%Y-%m-%d"])
        .output()
        .context("running date")?;
    let today = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    for (name, is_long) in [("ci", false), ("ci-long", true)] {
        let steps = steps::all(is_long)
            .into_iter()
            .filter(|step| step.is_long == is_long);
        let new: Vec<_> = outcomes
            .iter()
            .filter(|outcome| outcome.step.is_long == is_long)
            .map(|outcome| row(outcome, &today))
            .collect();
        let table = table(steps, section(&page, name)?, &new);
        page = replace_section(&page, name, &table)?;
    }
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

fn row(outcome: &StepOutcome, today: &str) -> String {
    let end = match &outcome.failure {
        // On one line, for a table cell.
        Some(failure) => format!(
            "**failed**: {}",
            failure.replace('|', "/").replace('\n', " ")
        ),
        None => "ok".to_owned(),
    };
    let StepOutcome { step, output, .. } = outcome;
    let results: String = output
        .results
        .iter()
        .map(|result| format!("; {result}"))
        .collect();
    let (minutes, skips) = (outcome.took.as_secs_f64() / 60.0, output.skips.len());
    format!(
        "| {} | {today} | {minutes:.1} | {skips} | {end}{results} |",
        step.name
    )
}

/// A row for each of `steps`, in order: the new one, else that of the `old` table, else "never
/// run".
fn table(steps: impl Iterator<Item = CiStep>, old: &str, new: &[String]) -> String {
    let head = "\n| step | last run | minutes | skips | result |\n|---|---|---|---|---|\n";
    steps.fold(head.to_owned(), |table, step| {
        let begin = format!("| {} |", step.name);
        let mut rows = new.iter().map(String::as_str).chain(old.lines());
        let never = format!("{begin} | | | **never run** |");
        table + rows.find(|row| row.starts_with(&begin)).unwrap_or(&never) + "\n"
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::output::StepOutput;
    use super::*;

    #[test]
    fn each_step_has_a_row_whatever_became_of_it() {
        let step = |name| CiStep {
            name,
            what: "",
            is_long: false,
            script: String::new(),
        };
        let failed = StepOutcome {
            step: &step("soak"),
            failure: Some("`a | b`\nended".to_owned()),
            took: Duration::from_secs(30),
            output: StepOutput {
                results: vec!["7 inputs".to_owned()],
                ..StepOutput::default()
            },
        };
        let old = "| fmt | 2026-02-03 | 0.5 | 0 | ok |\n| gone | | | | |\n| soak | | | | ok |\n";
        let table = table(
            ["fmt", "tsan", "soak"].map(step).into_iter(),
            old,
            &[row(&failed, "today")],
        );
        let rows: Vec<_> = table.lines().skip(3).collect();
        let wanted = [
            "| fmt | 2026-02-03 | 0.5 | 0 | ok |",
            "| tsan | | | | **never run** |",
            "| soak | today | 0.5 | 0 | **failed**: `a / b` ended; 7 inputs |",
        ];
        assert_eq!(rows, wanted);
    }
}
