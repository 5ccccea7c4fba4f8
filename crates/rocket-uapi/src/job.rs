// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs, and the buffers that they may touch.

mod builder;
mod error;
#[allow(unsafe_code)]
mod hand_over;
mod pending;
mod submission;
mod witness;

pub use builder::{Job, JobBuilder};
pub use error::{BuildError, Refusal, SubmitError, WaitError};
pub use pending::{FinishedJob, PendingJob};
pub(crate) use witness::IdleWitness;
pub use witness::witness_program;
