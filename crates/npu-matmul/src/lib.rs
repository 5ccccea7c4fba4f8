// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix multiplication (GEMM) and attention on the RK3588 NPU, for matrices of any size.
//!
//! C = A x B^T. A is M x K (activations), B is N x K (weights), C is M x N; all are row major in
//! host memory. INT8 and INT4 matmuls have exact 32-bit results. FP16 matmuls have binary32 or
//! binary16 results. Quantised matmuls take floats and compute in INT8 or INT4, with a scale for
//! each row of A and of B.
//!
//! ```
//! use npu_matmul::{Engine, Output, Weights};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The NPU, or the software model if there is none; one open file for each core.
//! let engine = Engine::open(npu_matmul::open_pool(3)?)?;
//! // Quantises and packs the weights into device memory, where they stay.
//! let b = engine.load(Weights::w8a8(2, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).rotated())?;
//! // Plans all tiles, jobs and programs once.
//! let gemm = engine.prepare(&b, 1, Output::F32)?;
//! let mut c = [0.0_f32; 2];
//! gemm.run(&[1.0_f32, 0.0, -1.0], &mut c)?;
//! assert!((c[0] + 2.0).abs() < 0.1 && (c[1] + 2.0).abs() < 0.1);
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! load:     plan::WeightPlan -> pack::pack_weight -> buffers that stay
//! prepare:  plan::Plan       where every tile goes        data, no device
//! run:      exec             pack, submit, wait, add up
//!             pack::pack_activation   A -> NC1HWC2 tiles
//!             emit                    tiles -> register programs
//!             unpack                  C tiles -> rows of the result
//! ```
//!
//! The chip dictates the memory formats; [`layout`] describes them in formulas and pictures.
//! [`mod@reference`] defines a matmul in a few lines; all tests compare with it.
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the RK3588 is little endian, and so are the buffers shared with its NPU");

mod activations;
mod arena;
pub mod attention;
mod buffers;
mod cache;
mod counters;
pub mod dtype;
pub mod emit;
mod engine;
mod error;
mod exec;
mod first_run;
mod gemm;
pub mod layout;
pub mod memory;
mod observe;
mod open;
mod operands;
pub mod pack;
mod packed;
pub mod plan;
pub mod predict;
mod prepared;
mod probe;
pub mod profile;
pub mod quantise;
pub mod reference;
mod scratch;
#[cfg_attr(not(feature = "software-npu"), path = "no_software_npu.rs")]
mod software_npu;
mod sync;
mod threads;
mod times;
mod weight_format;
mod weights;

pub use npu_kernels::{matrix, unpack};

pub use counters::Counters;
pub use dtype::{Dtype, Output, Results};
pub use engine::Engine;
pub use error::{Error, ErrorKind, GemmCallError, JobFailure};
pub use exec::AbortCheck;
pub use first_run::{MatmulKind, Remedy, TaskKind, WrongResult};
pub use gemm::{Gemm, GemmCall};
pub use observe::{Activity, Done, Observer, SubmittedJob};
pub use open::{OpenNpuError, OpenedNpu, open_npu, open_pool};
pub use operands::{Activations, OutputRows};
pub use packed::PackedWeights;
pub use plan::{Plan, PlanError, PlanOptions};
pub use profile::Profile;
pub use scratch::Scratch;
pub use software_npu::{SoftwareError, SoftwareNpu};
pub use threads::{Pinning, THREADS_VARIABLE, Threads, ThreadsError, run_parallel};
pub use times::{Section, Stopwatch, Times};
pub use weight_format::WeightFormat;
pub use weights::Weights;

/// Runs the program of docs/matmul.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/matmul.md")]
struct MatmulPage;
