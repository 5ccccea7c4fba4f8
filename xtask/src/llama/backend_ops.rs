// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: ggml's own comparison of backends, on the products that we take.

mod support;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::stats::Stats;
use super::stock::{Backend, Stock};
use crate::process;
use crate::report::Verdict;

/// Name of the check.
pub(super) const NAME: &str = "test-backend-ops";
/// Name of the check that leaves nothing out.
pub(super) const ALL: &str = "all-backend-ops";
const LIMIT: Duration = Duration::from_secs(420);
const LIMIT_OF_ALL: Duration = Duration::from_secs(3000);
/// The program loses the end of its output now and then, with status 0.
const ATTEMPTS: usize = 5;
/// At most four digits of rows: the one product left out has 2 105 344 rows and
/// takes 400 MB, which the software model has no use for.
const ROWS: &str = "n=[0-9]{1,4},";
/// Weights of the ordinary check: each way to decode and to compute once. The
/// others are decoded by ggml too, and computed like these.
const TYPES: &str = "type_a=(f32|f16|bf16|q8_0|q4_K|iq1_m),type_b=f32,m=[0-9]+,";

/// The same for products whose rows choose their weights. Those with thousands
/// of output channels take the software model minutes each.
const BY_EXPERT: &str = "type_a=(f16|q4_K),type_b=f32,.*,m=[0-9]{1,3},";

/// Runs a part of the cases.
pub(super) fn check(stock: &Stock) -> Result<Verdict> {
    let support = support::check(stock)?;
    let products = run(stock, "MUL_MAT", &format!("{TYPES}{ROWS}"), LIMIT)?;
    let by_expert = run(stock, "MUL_MAT_ID", BY_EXPERT, LIMIT)?;
    Ok(Verdict::Pass(format!("{products}; {by_expert}; {support}")))
}

/// Runs all cases.
pub(super) fn check_all(stock: &Stock) -> Result<Verdict> {
    let products = run(stock, "MUL_MAT", ROWS, LIMIT_OF_ALL)?;
    let by_expert = run(
        stock,
        "MUL_MAT_ID",
        "type_b=f32,.*,m=[0-9]{1,3},",
        LIMIT_OF_ALL,
    )?;
    Ok(Verdict::Pass(format!("{products}; {by_expert}")))
}

/// Runs the cases of `operation` that match `cases`; what was seen.
fn run(stock: &Stock, operation: &str, cases: &str, limit: Duration) -> Result<String> {
    let mut lost = None;
    for _ in 0..ATTEMPTS {
        let mut command = stock.command("test-backend-ops", Backend::With)?;
        command
            .args(["test", "-o", operation, "-b", "ROCKET0", "-p", cases])
            .env("GGML_ROCKET_MIN_M", "1");
        let started = Instant::now();
        let output = process::run(command, limit)?;
        let took = started.elapsed().as_secs();
        let text = output.text();
        // The exit status and "backends passed" say nothing: with a device
        // that does not exist they are just as good.
        let Some(result) = parse(&text) else {
            ensure!(
                output.status.success(),
                "test-backend-ops ended with {}: {}",
                output.status,
                output.tail()
            );
            lost = Some(output.tail());
            continue;
        };
        if result.passed != result.cases || !output.status.success() {
            let failing: Vec<&str> = failing(&text).take(5).collect();
            bail!(
                "{} of {} cases passed, status {}; the first that did not: {}",
                result.passed,
                result.cases,
                output.status,
                failing.join("; ")
            );
        }
        let stats = Stats::find(&output.stderr)?;
        ensure!(stats.count("products failed") == 0, "products failed");
        let products = stats.products()?;
        ensure!(
            products >= result.cases,
            "{} cases passed, but only {products} products were ours",
            result.cases,
        );
        let fp16 = stats.count("products computed in fp16");
        let others = products - fp16;
        return Ok(format!(
            "{operation}: {}/{} cases passed on {} ({fp16} products in FP16, {others} in INT8) with \
             GGML_ROCKET_MIN_M=1, {took} s",
            result.passed,
            result.cases,
            stats.device()
        ));
    }
    bail!(
        "test-backend-ops printed no result for ROCKET0 in {ATTEMPTS} runs: {}",
        lost.unwrap_or_default()
    )
}

/// A device's own line.
#[derive(Debug, PartialEq)]
struct Cases {
    passed: u64,
    cases: u64,
}

/// Finds `n/m tests passed` of ROCKET0, whose section must be complete.
fn parse(text: &str) -> Option<Cases> {
    let section = text.split("Backend ").find(|section| {
        let title = section.lines().next().unwrap_or_default();
        title.ends_with(": ROCKET0")
    })?;
    let line = section
        .lines()
        .find(|line| line.trim_end().ends_with("tests passed"))?;
    let (passed, cases) = line.split_whitespace().next()?.split_once('/')?;
    Some(Cases {
        passed: passed.parse().ok()?,
        cases: cases.parse().ok().filter(|cases| *cases > 0)?,
    })
}

/// The lines of cases that did not pass.
fn failing(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter(|line| line.contains("MUL_MAT") && line.contains("FAIL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKIPPED: &str = "Testing 2 devices\n\nBackend 1/2: ROCKET0\n  Skipping\n\
        Backend 2/2: CPU\n  Skipping\n2/2 backends passed\n";

    #[test]
    fn the_devices_own_line_decides() {
        let good = SKIPPED.replacen("  Skipping", "  MUL_MAT(x): OK\n  395/395 tests passed", 1);
        let cases = parse(&good).unwrap();
        assert_eq!((cases.passed, cases.cases), (395, 395));
    }

    #[test]
    fn a_device_that_was_not_tested_has_no_result() {
        assert_eq!(parse(SKIPPED), None);
        assert_eq!(parse("2/2 backends passed\n"), None);
        let none = SKIPPED.replacen("  Skipping", "  0/0 tests passed", 1);
        assert_eq!(parse(&none), None);
    }
}
