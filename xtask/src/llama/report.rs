// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts: one line a check, counted.

use std::fmt;

use anyhow::Error;

/// Newest ggml that all checks were seen to pass with. A failure with a newer
/// one is told apart from a failure of ours.
const NEWEST_TESTED_GGML: (u32, u32) = (0, 27);

/// An error whose cause lies outside of this repository and this machine.
#[derive(Debug)]
pub(crate) struct External(pub(crate) String);

impl fmt::Display for External {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for External {}

/// Marks an error as external.
pub(crate) fn external(error: &Error) -> Error {
    Error::new(External(format!("{error:#}")))
}

/// What a check can say.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It held; what was seen.
    Pass(String),
    /// It could not run here; why.
    Skip(String),
}

/// The verdicts so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
    skipped: usize,
    newer_ggml: Option<String>,
}

impl Report {
    /// Tells which ggml the following checks run with.
    pub(crate) fn set_host(&mut self, version: &str) {
        self.newer_ggml = is_newer(version).then(|| version.to_owned());
    }

    /// Counts and prints the outcome of the check `name`.
    pub(crate) fn add(&mut self, name: &str, outcome: Result<Verdict, Error>) {
        match outcome {
            Ok(Verdict::Pass(seen)) => {
                self.passed += 1;
                println!("PASS {name}: {seen}");
            }
            Ok(Verdict::Skip(why)) => {
                self.skipped += 1;
                println!("SKIP {name}: {why}");
            }
            Err(error) => self.error(name, &error),
        }
    }

    /// Counts and prints an error of the check `name`.
    pub(crate) fn error(&mut self, name: &str, error: &Error) {
        if error.chain().any(|cause| cause.is::<External>()) {
            self.skipped += 1;
            println!("SKIP-EXTERNAL {name}: {error:#}");
        } else if let Some(version) = &self.newer_ggml {
            let (major, minor) = NEWEST_TESTED_GGML;
            self.skipped += 1;
            println!(
                "SKIP-EXTERNAL {name}: fails with ggml {version}, newer than {major}.{minor} that \
                 this release was tested with: {error:#}"
            );
        } else {
            self.failed += 1;
            println!("FAIL {name}: {error:#}");
        }
    }

    /// How many failed.
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
    fn verdicts_are_counted() {
        let mut report = Report::default();
        report.add("a", Ok(Verdict::Pass("well".into())));
        report.add("b", Ok(Verdict::Skip("no".into())));
        report.add("c", Err(anyhow!("ours")));
        report.add("d", Err(external(&anyhow!("theirs")).context("fetching")));
        assert_eq!(report.closing_line(), "1 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn only_a_newer_ggml_excuses() {
        for (version, failed) in [("0.27.3", 1), ("0.28.0", 0), ("1.0", 0), ("odd", 1)] {
            let mut report = Report::default();
            report.set_host(version);
            report.add("a", Err(anyhow!("refused")));
            assert_eq!(report.failed(), failed, "{version}");
        }
    }
}
