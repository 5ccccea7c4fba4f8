// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe first`: checks whether this board behaves like its model, and shows what
//! differs.
//!
//! `first` is a ladder of small experiments; those that others have proved come first.
//! Each rung differs from its parent in one thing: if it fails and the parent passes,
//! that thing is the cause. Each rung runs in a separate process and leaves a
//! [`ExperimentRecord`](crate::experiment::record::ExperimentRecord). `first` judges the records on the board, `explain` anywhere.

mod dead_cores;
mod finding;
mod ladder;
mod results;
mod run;
#[cfg(test)]
mod tests;
mod verdict;

pub(crate) use ladder::{HEALTH_STEP, LADDER, Rung, RungPace};
pub(crate) use results::FirstResults;
pub(crate) use verdict::{FirstReport, ProfileChanges};
