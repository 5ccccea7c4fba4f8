// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs matmuls: pack, submit to all devices, wait, unpack and add up.
//!
//! ```text
//! for each wave (the next steps of one or several matmuls):
//!     on each device:  pack A -> link programs -> one SUBMIT   (start)
//! for each wave, in the same order:
//!     for each job:    wait -> unpack C, add up, scale         (finish)
//! ```
//!
//! Waves are started as long as there is room, before the first is finished. So the NPU computes
//! while the CPU packs the next wave or unpacks the previous one. If the CPU may compute jobs, few
//! waves have room, and while the first of them runs the CPU computes the last job that waits.
//! `wave` runs waves, `job` runs one job, and `checked_call` converts between matrices and buffers.

mod again;
pub mod attention;
mod call;
mod checked_call;
mod compute;
mod job;
mod probe;
mod run;
mod wait;
mod wave;

pub use again::AbortCheck;
pub(crate) use again::Again;
pub use call::{Matmul, MatmulCall};
pub(crate) use checked_call::{CheckedCall, EncodedRows, Epilogue, Operand, pack_band};
pub(crate) use job::DeviceWork;
pub(crate) use run::MatmulRun;
