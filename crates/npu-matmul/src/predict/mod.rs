// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions for a plan: modelled times, and bytes.

mod attention;
mod call;
mod npu;
mod read;
mod shared;

pub use call::{CallTime, call_together, npu_ps_together};
pub use npu::Prediction;
pub(crate) use npu::TaskWorks;
pub(crate) use shared::{shared_job_ps, shared_times};
