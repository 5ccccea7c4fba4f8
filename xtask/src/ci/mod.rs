// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask ci`: runs every step in order, and prints the result and time of each at the end.
//!
//! A step fails on a non-zero exit, and on a SKIP line that `expected-skips.txt` does not list: a
//! test must not stop running unnoticed. Steps mark failures with an external cause (a removed
//! package, a newer ggml) as `SKIP-EXTERNAL`. The summary repeats them, but the run does not fail.

mod outcome;
mod output;
mod record;
mod steps;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::paths;
use outcome::StepOutcome;
use output::StepOutput;
use steps::CiStep;

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
    /// List the steps, run nothing
    #[arg(long)]
    list: bool,
    /// Write when each step ran, how long, and how it ended into
    /// docs/testing.md
    #[arg(long)]
    record: bool,
}

/// Runs the steps chosen by `args`.
pub(crate) fn run(args: &CiArgs) -> Result<()> {
    let mut steps = steps::all(args.long);
    for name in &args.only {
        ensure!(
            steps.iter().any(|step| step.name == name),
            "no step is called {name}; `cargo xtask ci --list` names them all"
        );
    }
    steps.retain(|step| args.only.is_empty() || args.only.iter().any(|name| name == step.name));
    if args.list {
        steps
            .iter()
            .for_each(|step| println!("{:12} {}", step.name, step.what));
        return Ok(());
    }
    let outcomes: Vec<_> = steps.iter().map(run_step).collect();
    let failed = summarise(&outcomes);
    if args.record {
        record::write(&outcomes).context("recording into docs/testing.md")?;
    }
    if failed > 0 {
        bail!("{failed} of {} steps failed", outcomes.len());
    }
    Ok(())
}

fn run_step(step: &CiStep) -> StepOutcome<'_> {
    println!("\n=== {}: {}", step.name, step.what);
    let started = Instant::now();
    let mut shell = Command::new("sh");
    shell
        .args(["-euxc", &step.script])
        .current_dir(paths::root())
        .env("TARGET", paths::target())
        .env("NIGHTLY", nightly())
        .env("OLDEST_RUST", env!("CARGO_PKG_RUST_VERSION"));
    let (failure, output) = match output::run(shell) {
        Ok((status, output)) if status.success() => {
            let skips = steps::unexpected_skips(step.name, &output.skips);
            let failure = || format!("unexpected skips: {}", skips.join("; "));
            ((!skips.is_empty()).then(failure), output)
        }
        Ok((status, output)) => (Some(format!("ended with {status}")), output),
        Err(error) => (
            Some(format!("could not run: {error:#}")),
            StepOutput::default(),
        ),
    };
    if let Some(failure) = &failure {
        println!("=== {} FAILED: {failure}", step.name);
    }
    StepOutcome {
        step,
        failure,
        took: started.elapsed(),
        output,
    }
}

/// The pinned nightly toolchain.
fn nightly() -> &'static str {
    let mut lines = include_str!("../../../fuzz/rust-toolchain.toml").lines();
    let channel = lines.find_map(|line| line.strip_prefix("channel = "));
    channel.unwrap_or_default().trim_matches('"')
}

/// Prints the table of results; returns how many steps failed.
fn summarise(outcomes: &[StepOutcome<'_>]) -> usize {
    println!("\n{:12} {:>8} {:>6}  result", "step", "minutes", "skips");
    for one in outcomes {
        let (minutes, skips) = (one.took.as_secs_f64() / 60.0, one.output.skips.len());
        let result = one.failure.as_deref().unwrap_or("ok");
        println!("{:12} {minutes:>8.1} {skips:>6}  {result}", one.step.name);
    }
    for StepOutcome { step, output, .. } in outcomes {
        for line in &output.external {
            println!("outside our control, in {}: {line}", step.name);
        }
    }
    let mut failed = 0;
    for one in outcomes {
        if let Some(failure) = &one.failure {
            failed += 1;
            println!("\n{} failed: {failure}", one.step.name);
            for line in one.output.of_failure() {
                println!("    {line}");
            }
        }
    }
    println!("\n{} steps held, {failed} failed", outcomes.len() - failed);
    failed
}
