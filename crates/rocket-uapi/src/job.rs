// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs, and the buffers that they may touch.

mod builder;
mod canary;
mod error;
#[allow(unsafe_code)]
mod hand_over;
mod pending;

pub use builder::{Job, JobBuilder};
pub use canary::CANARY_AT_ONCE_MAX;
pub use error::{BuildError, Doubt, Refusal, SubmitError, WaitError};
pub use pending::{FinishedJob, PendingJob};
