// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a capture again, on the model or on a board, and compares the results.
//!
//! Each job starts from its recorded state, whatever the job before it did this time, so
//! each job is judged by itself. Buffer objects lie at their recorded addresses, so the
//! command words stay unchanged. [`replay_changed`] runs one job with another program.

mod change;
mod compare;
mod error;
mod place;
mod report;
mod run;

pub use change::ProgramChange;
pub use error::ReplayError;
pub use report::{
    ByteDifference, ContentsComparison, ElementDifference, ReplayReport, ReplayedJob,
};
pub use run::{ReplayOptions, replay, replay_changed};
