// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs with the buffers that they may access.

mod builder;
#[allow(unsafe_code)]
mod hand_over;
mod pending;
mod submission;
mod witness;

pub use builder::{BuildError, Job, JobBuilder, Refusal};
pub use pending::{PendingJob, WaitError};
pub use submission::{FailedJob, FinishedJob, SubmitError};
pub use witness::witness_program;
