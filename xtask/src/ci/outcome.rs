// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a step of CI ended.

use std::time::Duration;

/// How one step ended, for the summary and for the record.
pub(crate) struct StepOutcome {
    /// The step's name.
    pub(crate) name: &'static str,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    /// Wall time of all its commands.
    pub(crate) took: Duration,
    /// SKIP lines, expected ones included.
    pub(crate) skips: Vec<String>,
    /// SKIP-EXTERNAL lines: what the outside world did not give, such as a package.
    pub(crate) external: Vec<String>,
    /// RESULT lines: figures for the table in docs/testing.md.
    pub(crate) results: Vec<String>,
}
