// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs with the buffers that they may access.

mod builder;
#[allow(unsafe_code)]
mod hand_over;
mod pending;
mod refusal;
mod submission;
mod wait;
mod witness;

pub use builder::{Job, JobBuilder};
pub use pending::PendingJob;
pub use refusal::{BuildError, Refusal};
pub use submission::{FinishedJob, SubmitError};
pub use wait::WaitError;
pub use witness::witness_program;
