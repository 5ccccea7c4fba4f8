// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: ggml's own comparison of backends, on the products that we take.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::process;
use crate::report::{CheckVerdict, VerdictTally};

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "test-backend-ops";
/// Name of the check of all products but the largest, which [`ROWS`] and
/// [`ALL_BY_EXPERT`] leave out.
pub(super) const ALL: &str = "all-backend-ops";
const LIMIT: Duration = Duration::from_secs(420);
const LIMIT_OF_ALL: Duration = Duration::from_secs(3000);
/// At most four digits of rows: the one product left out has 2 105 344 rows and
/// takes 400 MB, which the software model has no use for.
const ROWS: &str = "n=[0-9]{1,4},";
/// Weights of the ordinary check: each way to decode and to compute once. The
/// others are decoded by ggml too, and computed like these.
const TYPES: &str = "type_a=(f32|f16|bf16|q8_0|q4_K|iq1_m),type_b=f32,m=[0-9]+,";

/// The same for products whose rows choose their weights. Those with thousands
/// of output channels take the software model minutes each.
const BY_EXPERT: &str = "type_a=(f16|q4_K),type_b=f32,.*,m=[0-9]{1,3},";

/// What `auto` leaves to FP16 or computes in INT8 for some sizes only: both types
/// that lie in memory as in the file and those that the CPU rearranges.
const IN_INT8: &str = "type_a=(q8_0|q4_1|q4_K),type_b=f32,m=16,n=[0-9]{1,2},";
/// The same for products whose rows choose their weights.
const IN_INT8_BY_EXPERT: &str = "type_a=q8_0,type_b=f32,.*,m=[0-9]{1,3},n=[0-9]{1,2},";

/// What the error of one case in INT8 may be of the program's bound, a normalised
/// mean square of 5e-4, if the case is within it in the next run.
///
/// The operands are random. Of K = 4096 rotated numbers the largest is 3.8 standard
/// deviations, which 127 steps divide; both operands so rounded, and the CPU's own 8
/// bits, make an expected error of 1.66e-4. Of 16 outputs error and result are each a
/// sum of 16 squares, and their ratio is as F(16, 16): above the bound in 1.7 % of
/// the runs, above twice the bound in 0.04 %. Measured on the model by 400 runs of
///
/// ```text
/// test-backend-ops test -o MUL_MAT -b ROCKET-MODEL0 -p type_a=q4_1,type_b=f32,m=16,n=1,k=4096,
/// ```
///
/// as [`run`] starts it in INT8, with the bound in the program's file set to 1e-30, so
/// that it prints each error: geometric mean 1.66e-4, 12 above the bound (3 %), the
/// largest 1.6 times it. In 66 runs of the 136 cases of [`IN_INT8`] 3 errors were
/// above it, in a run each, all of 16 outputs. So the check fails by chance in one of
/// some 700 runs (5 % by 3 %), and an error of twice the bound is a fault.
const EXCESS: f64 = 2.0;

/// Compares what is supported, or keeps it with `record`, and runs a part of the
/// cases.
pub(super) fn check(stock: &Stock, record: bool, report: &mut VerdictTally) {
    let supported = support::check(stock, record).map(CheckVerdict::Pass);
    report.add(&format!("{NAME} support"), supported);
    report.add(NAME, check_part(stock));
}

fn check_part(stock: &Stock) -> Result<CheckVerdict> {
    let seen = [
        run(stock, "MUL_MAT", &format!("{TYPES}{ROWS}"), AUTO, LIMIT)?,
        run(stock, "MUL_MAT_ID", BY_EXPERT, AUTO, LIMIT)?,
        run(stock, "MUL_MAT", IN_INT8, INT8, LIMIT)?,
        run(stock, "MUL_MAT_ID", IN_INT8_BY_EXPERT, INT8, LIMIT)?,
    ];
    Ok(CheckVerdict::Pass(seen.join("; ")))
}

/// Runs all cases but the largest.
pub(super) fn check_all(stock: &Stock) -> Result<CheckVerdict> {
    let products = run(stock, "MUL_MAT", ROWS, AUTO, LIMIT_OF_ALL)?;
    let by_expert = run(stock, "MUL_MAT_ID", ALL_BY_EXPERT, AUTO, LIMIT_OF_ALL)?;
    Ok(CheckVerdict::Pass(format!("{products}; {by_expert}")))
}

/// All but those of 4096 output channels, whose 128 experts have a thousand million
/// weights: making these takes the program minutes.
const ALL_BY_EXPERT: &str = "type_b=f32,.*,m=([0-9]{1,3}|1024|2880),";

/// A value of `GGML_ROCKET_PRECISION`, and the row of the table that all products
/// are then counted in, if it is one.
struct PrecisionSetting {
    word: &'static str,
    computed: Option<&'static str>,
}

const AUTO: PrecisionSetting = PrecisionSetting {
    word: "auto",
    computed: None,
};
const INT8: PrecisionSetting = PrecisionSetting {
    word: "w8a8-hadamard",
    computed: Some("int8-hadamard"),
};

/// Runs the cases of `operation` that match `cases`; what was seen.
fn run(
    stock: &Stock,
    operation: &str,
    cases: &str,
    precision: PrecisionSetting,
    limit: Duration,
) -> Result<String> {
    let word = precision.word;
    let mut lost = None;
    let mut failed_before = BTreeSet::new();
    for _ in 0..support::ATTEMPTS {
        let mut command = stock.command("test-backend-ops", Backend::With)?;
        command
            .args([
                "test",
                "-o",
                operation,
                "-b",
                stock.device_name(),
                "-p",
                cases,
            ])
            .env("GGML_ROCKET_MIN_M", "1")
            .env("GGML_ROCKET_PRECISION", word);
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
            let cases: BTreeSet<String> = failing.iter().map(|line| case(line)).collect();
            if precision.computed.is_some()
                && failing.len() == 1
                && excess(failing[0]).is_some_and(|excess| excess < EXCESS)
                && failed_before.is_disjoint(&cases)
            {
                failed_before.extend(cases);
                continue;
            }
            bail!(
                "{} of {} cases passed, status {}; the first that did not: {}",
                result.passed,
                result.cases,
                output.status,
                failing.join("; ")
            );
        }
        let stats = StatsTable::find(&output.stderr)?;
        ensure!(stats.count("products failed") == 0, "products failed");
        let products = stats.products()?;
        ensure!(
            products >= result.cases,
            "{} cases passed, but only {products} products were ours",
            result.cases,
        );
        if let Some(computed) = precision.computed {
            ensure!(
                stats.precisions() == [computed],
                "with GGML_ROCKET_PRECISION={word} products were computed in {}",
                stats.precisions().join(", ")
            );
        }
        let fp16 = stats.count("products computed in fp16");
        let others = products - fp16;
        let (submits, jobs) = (stats.count("submits"), stats.count("jobs"));
        return Ok(format!(
            "{operation}, {word}: {}/{} cases passed on {} ({fp16} products in FP16, {others} in \
             INT8; {jobs} jobs in {submits} SUBMITs) with GGML_ROCKET_MIN_M=1, {took} s",
            result.passed,
            result.cases,
            stats.device()
        ));
    }
    bail!(
        "test-backend-ops printed no result for our device in {} runs: {}",
        support::ATTEMPTS,
        lost.unwrap_or_default()
    )
}

/// A device's own line.
#[derive(Debug, PartialEq)]
struct Cases {
    passed: u64,
    cases: u64,
}

/// Finds `n/m tests passed` of our device, whose section must be complete.
fn parse(text: &str) -> Option<Cases> {
    let section = text.split("Backend ").find(|section| {
        let title = section.lines().next().unwrap_or_default();
        title.contains(": ROCKET")
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

/// Of a line `ERR = error > bound`: how many times the bound the error is.
fn excess(line: &str) -> Option<f64> {
    let (_, values) = line.split_once("ERR = ")?;
    let (error, rest) = values.split_once(" > ")?;
    let bound = rest.split_whitespace().next()?;
    Some(error.parse::<f64>().ok()? / bound.parse::<f64>().ok()?)
}

/// The case that such a line is of, without its error.
fn case(line: &str) -> String {
    let start = line.rfind("MUL_MAT").unwrap_or_default();
    line[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_told_from_its_error() {
        let line =
            |error| format!("[MUL_MAT] ERR = {error} > 0.0005   MUL_MAT(type_a=q4_1,m=16): FAIL");
        assert_eq!(case(&line("0.00052")), "MUL_MAT(type_a=q4_1,m=16): FAIL");
        assert_eq!(case(&line("0.00052")), case(&line("0.1")));
        assert_eq!(case("FAIL"), "FAIL");
        assert!(excess(&line("0.00052")).is_some_and(|excess| excess < EXCESS));
        assert!(excess(&line("0.0011")).is_some_and(|excess| excess > EXCESS));
        assert!(excess(&line("nan")).is_some_and(f64::is_nan));
        assert_eq!(excess("NaN at index 0: FAIL"), None);
    }

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
