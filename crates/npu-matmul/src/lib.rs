// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix multiplication (GEMM) and attention on the RK3588 NPU, for matrices of any size.
//!
//! C = A x B^T. A is M x K (activations), B is N x K (weights), C is M x N; all are row major in
//! host memory. INT8 and INT4 matmuls have exact 32-bit results. FP16 matmuls have binary32 or
//! binary16 results. Quantised matmuls take floats and compute in INT8 or INT4, with a scale for
//! each row of A and of B.
//!
//! ```
//! use npu_matmul::{Engine, Weights};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The NPU, or the software model if there is none; one open file for each core.
//! let engine = Engine::open(npu_matmul::open_pool(3)?)?;
//! // Quantises and packs the weights into device memory, where they stay.
//! let b = engine.load(Weights::w8a8(2, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).rotated())?;
//! // Plans all tiles, jobs and programs once.
//! let matmul = engine.prepare(&b, 1)?;
//! let mut c = [0.0_f32; 2];
//! matmul.run(&[1.0_f32, 0.0, -1.0], &mut c)?;
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
//! Folders, each of which uses those before it only: `numbers` (formats and bytes), `profile` (what
//! is known of a board), `plan` (sizes in, data out), `device` (memory and clocks of an open file),
//! `predict` (times of plans), `engine` (an engine and its weights), `exec` (calls that run).
//!
//! The chip dictates the memory formats; [`layout`] describes them in formulas and pictures.
//! [`mod@reference`] defines a matmul in a few lines; all tests compare with it.
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the RK3588 is little endian, and so are the buffers shared with its NPU");

mod device;
mod engine;
mod exec;
mod numbers;
pub mod plan;
pub mod predict;
pub mod profile;

pub use npu_kernels::{matrix, unpack};

pub use device::counters::Counters;
pub use device::memory;
pub use device::open::{OpenNpuError, OpenedNpu, open_npu, open_pool};
pub use device::software_npu::{SoftwareError, SoftwareNpu};
pub use device::times::{Section, Stopwatch, Times};
pub use engine::Engine;
pub use engine::packed::PackedWeights;
pub use engine::weights::Weights;
pub use exec::{AbortCheck, Matmul, MatmulCall, attention};
pub use numbers::dtype::Dtype;
pub use numbers::operands::{Activations, Outputs};
pub use numbers::scratch::Scratch;
pub use numbers::{dtype, layout, pack, quantise, reference};
pub use plan::error::{EngineCallError, Error, ErrorKind, JobFailure};
pub use plan::first_run::{MatmulKind, Remedy, TaskKind, WrongResult};
pub use plan::observe::{Activity, Done, JobEvent, Observer};
pub use plan::threads::{Pinning, THREADS_VARIABLE, Threads, ThreadsError, run_parallel};
pub use plan::weight_format::WeightFormat;
pub use plan::{Plan, PlanError, PlanOptions, emit};
pub use profile::Profile;

/// Runs the program of docs/matmul.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/matmul.md")]
struct MatmulPage;
