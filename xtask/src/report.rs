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

/// Prints the verdict of each check, and counts them.
#[derive(Debug, Default)]
pub(crate) struct VerdictTally {
    passed: usize,
    failed: usize,
}

impl VerdictTally {
    /// Counts and prints the outcome of the check `name`: what was seen, or why it failed.
    pub(crate) fn add(&mut self, name: &str, outcome: Result<String, Error>) {
        println!("{}", self.judge(name, &outcome));
    }

    /// Counts the outcome of the check `name`; returns the line that tells it.
    fn judge(&mut self, name: &str, outcome: &Result<String, Error>) -> String {
        match outcome {
            Ok(seen) => {
                self.passed += 1;
                format!("PASS {name}: {seen}")
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
        format!("{} passed, {} failed", self.passed, self.failed)
    }
}
