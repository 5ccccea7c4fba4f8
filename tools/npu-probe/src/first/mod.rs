// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe first`: does this board do the same as its model, and if not, what
//! differs?
//!
//! A ladder of small experiments, those that others have proved first. Each rung differs
//! from its parent in one thing, so that a rung that fails behind a parent that passes
//! names the cause. A rung is a process of its own ([`RungRecord`] is what it leaves);
//! all judging is done on records, by `first` on the board and by `explain` anywhere.
//!
//! ```text
//! ladder        the rungs: parents, what a failure means
//! products      matrix products as rungs run them
//! experiments   rungs that are more than a product
//! record        the record of a rung
//! results       the records of a run, from its folder or its archive
//! finding       differences of a record from the model
//! verdict       the cause, and a profile that avoids it
//! ```

mod experiments;
mod finding;
mod kernel_log;
mod ladder;
mod products;
mod record;
mod results;
#[cfg(test)]
mod tests;
mod verdict;

pub(crate) use finding::differences;
pub(crate) use ladder::{HEALTH_STEP, LADDER, Rung};
pub(crate) use record::RungRecord;
pub(crate) use results::FirstResults;
pub(crate) use verdict::{FirstReport, broken_since};
