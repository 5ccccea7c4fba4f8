// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts: one line a check, counted.

use std::fmt;

use anyhow::Error;

/// Newest ggml that all checks were seen to pass with. A failure with a newer
/// one is told apart from a failure of ours.
const NEWEST_TESTED_GGML: (u32, u32) = (0, 27);

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
    newer_ggml: Option<String>,
}

impl VerdictTally {
    /// Tells which ggml the following checks run with.
    pub(crate) fn set_host(&mut self, version: &str) {
        self.newer_ggml = is_newer(version).then(|| version.to_owned());
    }

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
        match (outcome, &self.newer_ggml) {
            (Ok(CheckVerdict::Pass(seen)), _) => {
                self.passed += 1;
                format!("PASS {name}: {seen}")
            }
            (Ok(CheckVerdict::Skip(why)), _) => {
                self.skipped += 1;
                format!("SKIP {name}: {why}")
            }
            (Err(error), _) if error.chain().any(|cause| cause.is::<ExternalError>()) => {
                self.skipped += 1;
                format!("SKIP-EXTERNAL {name}: {error:#}")
            }
            (Err(error), Some(version)) => {
                let (major, minor) = NEWEST_TESTED_GGML;
                self.skipped += 1;
                format!(
                    "SKIP-EXTERNAL {name}: fails with ggml {version}, newer than {major}.{minor} \
                     that this release was tested with: {error:#}"
                )
            }
            (Err(error), None) => {
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

fn is_newer(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) > NEWEST_TESTED_GGML,
        _ => false,
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

    #[test]
    fn only_a_newer_ggml_excuses() {
        for (version, failed) in [("0.27.3", 1), ("0.28.0", 0), ("1.0", 0), ("odd", 1)] {
            let mut report = VerdictTally::default();
            report.set_host(version);
            report.judge("a", Err(&anyhow!("refused")));
            assert_eq!(report.failed(), failed, "{version}");
        }
    }
}
