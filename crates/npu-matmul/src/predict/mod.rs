// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions for a plan: modelled times, and bytes.

mod caches;
mod call;
mod npu;

pub use call::CallTime;
pub use npu::Prediction;
pub(crate) use npu::TaskWorks;
