// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix products of any size on the RK3588 NPU.
//!
//! C = A x B^T, with A of M x K (activations), B of N x K (weights) and C of
//! M x N, all row major in host memory. Three precisions: INT8 and INT4 with
//! exact 32-bit results, FP16 with binary32 or binary16 results; and float
//! products by way of INT8 with a scale for each row of A and of B.
//!
//! ```text
//! load_*:      plan::WeightPlan -> pack::pack_weight -> buffers that stay
//! multiply_*:  plan::Plan       where every tile goes        data, no device
//!              exec             pack, submit, wait, add up   two screens
//!                pack::pack_activation   A -> NC1HWC2 tiles
//!                emit                    tiles -> register programs
//!                unpack                  C tiles -> rows of the result
//! ```
//!
//! The chip dictates the memory formats: [`layout`] has them as formulas and
//! pictures. [`mod@reference`] says in a few lines what a product is; all tests
//! compare with it.
//!
//! ```no_run
//! use npu_matmul::Engine;
//! use rocket_uapi::{Device, DevicePool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One file for each core.
//! let engine = Engine::new(DevicePool::open(&Device::discover()?, 3)?)?;
//! let weights = engine.load_i8(2, 3, &[1, 2, 3, 4, 5, 6])?;
//! let mut c = [0; 2];
//! engine.multiply_i32(&weights, 1, &[1, 0, -1], &mut c)?;
//! assert_eq!(c, [-2, -2]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the RK3588 is little endian, and so are the buffers shared with its NPU");

mod batch;
mod buffers;
mod cache;
mod counters;
pub mod dtype;
pub mod emit;
mod engine;
mod error;
mod exec;
pub mod layout;
mod observe;
pub mod pack;
pub mod plan;
mod prepared;
pub mod profile;
pub mod quantise;
mod quantised;
pub mod reference;
mod staged;
mod threads;
mod times;
pub mod unpack;
mod weights;

pub use npu_kernels::matrix;

pub use batch::{Batch, Submitted};
pub use counters::Counters;
pub use dtype::{Dtype, Results};
pub use engine::Engine;
pub use error::{Error, JobFailure};
pub use observe::{Activity, Done, Observer, SubmittedJob};
pub use plan::{Plan, PlanError, PlanOptions};
pub use profile::Profile;
pub use quantised::QuantisedActivations;
pub use staged::{
    ActivationBuffer, ActivationRegion, ResultBuffer, ResultRegion, StageOptions, Staged,
    StagedError, StagedRun,
};
pub use threads::{Pinning, THREADS_VARIABLE, Threads, ThreadsError};
pub use times::{Section, Stopwatch, Times};
pub use weights::Weights;

/// The program of docs/matmul.md runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/matmul.md")]
struct MatmulPage;
