// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a step after it ran.

use std::time::Duration;

use super::output::StepOutput;
use super::steps::CiStep;

/// How a step ended.
pub(super) struct StepOutcome<'a> {
    pub(super) step: &'a CiStep,
    /// Why it failed, if it did.
    pub(super) failure: Option<String>,
    pub(super) took: Duration,
    pub(super) output: StepOutput,
}
