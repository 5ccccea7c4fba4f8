// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts: one line a check, counted.

use std::fmt;

use anyhow::Error;

/// An error whose cause lies outside of this repository and this machine.
#[derive(Debug)]
pub(crate) struct ExternalError(pub(crate) String);

impl fmt::Display for ExternalError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ExternalError {}

/// Marks an error as external.
pub(crate) fn external(error: &Error) -> Error {
    Error::new(ExternalError(format!("{error:#}")))
}

/// How a check ended that did not fail.
#[derive(Debug)]
pub(crate) enum CheckVerdict {
    /// It held; what was seen.
    Pass(String),
    /// It could not run here; why.
    Skip(String),
}

/// Prints the verdict of each check, and counts them.
#[derive(Debug, Default)]
pub(crate) struct VerdictTally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl VerdictTally {
    /// Counts and prints the outcome of the check `name`.
    pub(crate) fn add(&mut self, name: &str, outcome: Result<CheckVerdict, Error>) {
        println!("{}", self.judge(name, outcome.as_ref()));
    }

    /// Counts and prints an error of the check `name`.
    pub(crate) fn error(&mut self, name: &str, error: &Error) {
        println!("{}", self.judge(name, Err(error)));
    }

    /// Counts the outcome of the check `name`; returns the line that tells it.
    fn judge(&mut self, name: &str, outcome: Result<&CheckVerdict, &Error>) -> String {
        match outcome {
            Ok(CheckVerdict::Pass(seen)) => {
                self.passed += 1;
                format!("PASS {name}: {seen}")
            }
            Ok(CheckVerdict::Skip(why)) => {
                self.skipped += 1;
                format!("SKIP {name}: {why}")
            }
            Err(error) if error.chain().any(|cause| cause.is::<ExternalError>()) => {
                self.skipped += 1;
                format!("SKIP-EXTERNAL {name}: {error:#}")
            }
            Err(error) => {
                self.failed += 1;
                format!("FAIL {name}: {error:#}")
            }
        }
    }

    /// Number of checks that failed.
    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    /// The line that ends the output.
    pub(crate) fn closing_line(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn verdicts_are_counted_and_told() {
        let mut report = VerdictTally::default();
        let pass = CheckVerdict::Pass("well".into());
        assert_eq!(report.judge("a", Ok(&pass)), "PASS a: well");
        let skip = CheckVerdict::Skip("no".into());
        assert_eq!(report.judge("b", Ok(&skip)), "SKIP b: no");
        let ours = anyhow!("ours");
        assert_eq!(report.judge("c", Err(&ours)), "FAIL c: ours");
        let theirs = external(&anyhow!("theirs")).context("fetching");
        assert_eq!(
            report.judge("d", Err(&theirs)),
            "SKIP-EXTERNAL d: fetching: theirs"
        );
        assert_eq!(report.closing_line(), "1 passed, 1 failed, 2 skipped");
    }
}
