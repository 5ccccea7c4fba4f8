// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask ci`: runs every step, in order, and says at the end which ones
//! held and how long each took.
//!
//! A step fails on a non-zero exit, and on a SKIP line that
//! `expected-skips.txt` does not list: a test that quietly stopped running is
//! a failure of ours. What the outside world took away (a package gone, a
//! newer ggml) is marked `SKIP-EXTERNAL` by the step that met it and is
//! repeated in the summary, but fails nothing.

mod long;
mod outcome;
mod output;
mod record;
mod skips;
mod step;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use outcome::StepOutcome;
use skips::ExpectedSkips;
use step::CiStep;

/// Options of `cargo xtask ci`.
#[derive(clap::Args, Debug)]
pub(crate) struct CiArgs {
    /// Also run what takes longer than a change can wait for: many more
    /// property test cases, soaks
    #[arg(long)]
    long: bool,
    /// Run only the steps with these names
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// List the steps and their commands, run nothing
    #[arg(long)]
    list: bool,
    /// Write when each step ran, how long, and how it ended into
    /// docs/testing.md
    #[arg(long)]
    record: bool,
}

/// Runs the steps chosen by `args`.
pub(crate) fn run(args: &CiArgs) -> Result<()> {
    let all = steps::all(args.long);
    for name in &args.only {
        if !all.iter().any(|step| step.name == name) {
            bail!("no step is called {name}; `cargo xtask ci --list` names them all");
        }
    }
    let chosen: Vec<CiStep> = all
        .into_iter()
        .filter(|step| args.only.is_empty() || args.only.iter().any(|name| name == step.name))
        .collect();
    if args.list {
        for step in &chosen {
            println!("{:12} {}", step.name, step.what);
        }
        return Ok(());
    }

    let expected = ExpectedSkips::load().context("reading the list of expected skips")?;
    let mut outcomes = Vec::new();
    for step in &chosen {
        println!("\n=== {}: {}", step.name, step.what);
        let outcome = run_step(step, &expected);
        if let Some(failure) = &outcome.failure {
            println!("=== {} FAILED: {failure}", step.name);
        }
        outcomes.push(outcome);
    }

    let failed = summarise(&outcomes);
    if args.record {
        record::write(&outcomes, args.long).context("recording into docs/testing.md")?;
    }
    if failed > 0 {
        bail!("{failed} of {} steps failed", outcomes.len());
    }
    Ok(())
}

fn run_step(step: &CiStep, expected: &ExpectedSkips) -> StepOutcome {
    let started = Instant::now();
    let mut outcome = StepOutcome {
        name: step.name,
        failure: None,
        took: Duration::ZERO,
        skips: Vec::new(),
        external: Vec::new(),
        results: Vec::new(),
    };
    for run in &step.runs {
        match output::run(&mut run.command()) {
            Ok(captured) => {
                outcome.skips.extend(captured.skips);
                outcome.external.extend(captured.external);
                outcome.results.extend(captured.results);
                if !captured.status.success() {
                    outcome.failure = Some(format!("`{run}` ended with {}", captured.status));
                    break;
                }
            }
            Err(error) => {
                outcome.failure = Some(format!("`{run}` could not run: {error:#}"));
                break;
            }
        }
    }
    if outcome.failure.is_none()
        && let Some(line) = expected.first_unexpected(step.name, &outcome.skips)
    {
        outcome.failure = Some(format!("unexpected skip: {line}"));
    }
    outcome.took = started.elapsed();
    outcome
}

/// Prints the table of results; returns how many steps failed.
fn summarise(outcomes: &[StepOutcome]) -> usize {
    println!("\n{:12} {:>8} {:>6}  result", "step", "minutes", "skips");
    for outcome in outcomes {
        println!(
            "{:12} {:>8.1} {:>6}  {}",
            outcome.name,
            outcome.took.as_secs_f64() / 60.0,
            outcome.skips.len(),
            outcome.failure.as_deref().unwrap_or("ok")
        );
    }
    for outcome in outcomes {
        for line in &outcome.external {
            println!("outside our control, in {}: {line}", outcome.name);
        }
    }
    let failed = outcomes.iter().filter(|o| o.failure.is_some()).count();
    println!("\n{} steps held, {failed} failed", outcomes.len() - failed);
    failed
}
