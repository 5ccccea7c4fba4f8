// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of ggml's test cases the backend takes, by type of weights, against a
//! file that says which it took before: a case that is quietly declined passes
//! every test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::llama::stock::{Backend, Stock};
use crate::report::external;
use crate::{paths, process};

const LIMIT: Duration = Duration::from_secs(60);
/// The program loses the end of its output now and then, with status 0.
pub(super) const ATTEMPTS: usize = 5;

/// The file, from the root of the repository.
const KEPT: &str = "xtask/src/llama/backend_ops/support.txt";
/// The beginning of the file's first line; the version of ggml follows.
const TITLE: &str = "Cases of ggml ";
/// The operations that are counted.
const OPERATIONS: [&str; 2] = ["MUL_MAT", "MUL_MAT_ID"];

/// Supported and declined cases by operation and type of weights.
type Counts = BTreeMap<(String, String), [u64; 2]>;

/// Compares, or keeps what is counted if `record`; what was seen.
pub(super) fn check(stock: &Stock, record: bool) -> Result<String> {
    let counts = ask(stock)?;
    let version = stock.ggml_version();
    let now = write(version, &counts);
    let file = paths::root().join(KEPT);
    if record {
        fs::write(&file, &now).with_context(|| format!("writing {KEPT}"))?;
    }
    let kept = fs::read_to_string(&file).with_context(|| format!("reading {KEPT}"))?;
    let supported: u64 = counts.values().map(|[supported, _]| supported).sum();
    let cases: u64 = counts.values().flatten().sum();
    let seen = format!("{supported} of {cases} cases supported");
    compare(&kept, &now).with_context(|| seen.clone())?;
    Ok(format!("{seen}, as in {KEPT}"))
}

/// Whether `now` is what was `kept`.
///
/// # Errors
/// If it is not; an external one if they are of different ggml, which cannot be
/// compared.
fn compare(kept: &str, now: &str) -> Result<()> {
    let title = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    if title(kept) != title(now) {
        return Err(external(&anyhow!(
            "not compared: {KEPT} has {:?}, here are {:?}, which \
             `cargo xtask llama test-backend-ops --record` writes",
            title(kept),
            title(now)
        )));
    }
    if let Some((before, after)) = kept.lines().zip(now.lines()).find(|(a, b)| a != b) {
        bail!(
            "not those of {KEPT}: there {before:?}, now {after:?}; if that is meant, \
             `cargo xtask llama test-backend-ops --record` writes it"
        );
    }
    ensure!(
        kept.lines().count() == now.lines().count(),
        "there are not as many types as in {KEPT}; if that is meant, \
         `cargo xtask llama test-backend-ops --record` writes it"
    );
    Ok(())
}

fn ask(stock: &Stock) -> Result<Counts> {
    let mut counts = Counts::new();
    for operation in OPERATIONS {
        counts.extend(ask_about(stock, operation)?);
    }
    Ok(counts)
}

fn ask_about(stock: &Stock, operation: &str) -> Result<Counts> {
    let name = stock.device_name();
    let arguments = ["support", "-o", operation, "-b", name, "--output", "csv"];
    // The longest of several answers is the one that lost nothing.
    let mut most = Counts::new();
    for _ in 0..ATTEMPTS {
        let mut command = stock.command("test-backend-ops", Backend::With)?;
        command.args(arguments).env("GGML_ROCKET_MIN_M", "1");
        let output = process::run(command, LIMIT)?.checked("test-backend-ops support")?;
        let counts = count(&output.text());
        if counts.values().flatten().sum::<u64>() > most.values().flatten().sum() {
            most = counts;
        }
    }
    ensure!(
        !most.is_empty(),
        "test-backend-ops listed no case of {operation}"
    );
    Ok(most)
}

/// Counts lines of comma-separated values, all in quotes.
fn count(csv: &str) -> Counts {
    let mut counts = Counts::new();
    for line in csv.lines() {
        let fields: Vec<&str> = line.trim().trim_matches('"').split("\",\"").collect();
        let [_, operation, parameters, _, supported, ..] = fields[..] else {
            continue;
        };
        let of_type = parameters
            .split(',')
            .find_map(|parameter| parameter.strip_prefix("type_a="));
        if let Some(of_type) = of_type {
            let key = (operation.to_owned(), of_type.to_owned());
            let counts = counts.entry(key).or_default();
            counts[usize::from(supported != "1")] += 1;
        }
    }
    counts
}

fn write(version: &str, counts: &Counts) -> String {
    let mut text = format!("{TITLE}{version}\noperation type supported declined\n");
    for ((operation, of_type), [supported, declined]) in counts {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{operation} {of_type} {supported} {declined}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ExternalError;

    #[test]
    fn cases_are_counted_by_type() {
        let csv = "\"backend_name\",\"op_name\",\"op_params\",\"test_mode\",\"supported\"\n\
            \"ROCKET0\",\"MUL_MAT\",\"type_a=q4_0,type_b=f32,m=16\",\"support\",\"1\",\"yes\",\"R\"\n\
            \"ROCKET0\",\"MUL_MAT\",\"type_a=q4_0,type_b=f16,m=16\",\"support\",\"0\",\"no\",\"R\"\n";
        assert_eq!(
            count(csv),
            [(("MUL_MAT".to_owned(), "q4_0".to_owned()), [1, 1])].into()
        );
        assert_eq!(
            write("1.2", &count(csv)),
            "Cases of ggml 1.2\noperation type supported declined\nMUL_MAT q4_0 1 1\n"
        );
    }

    #[test]
    fn only_another_ggml_is_no_failure() {
        let kept = write("1.2", &[(("MUL_MAT".into(), "q4_0".into()), [1, 1])].into());
        compare(&kept, &kept).unwrap();
        for (now, is_external) in [
            (kept.replace("1.2", "1.3"), true),
            (kept.replace("1 1", "0 2"), false),
            (format!("{kept}MUL_MAT q4_1 1 1\n"), false),
        ] {
            let error = compare(&kept, &now).unwrap_err().context("seen");
            let cause = error.chain().any(|cause| cause.is::<ExternalError>());
            assert_eq!(cause, is_external, "{error:#}");
        }
    }
}
