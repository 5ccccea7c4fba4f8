// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU kernels for matmuls on the NPU: packing, quantising, unpacking and softmax.
//!
//! ```text
//! rows of floats --(round to f16, or quantise)--> rows of A or B
//! rows of A or B --(encode: nibbles)--> runs --(order)--> tile
//! tile of C --(order, add up, dequantise)--> rows of sums or floats
//! rows of A and tile of INT8 weights --(multiply)--> tile of C
//! rows of floats --(Hadamard)--> rows that quantise better
//! tile of scores --(mask, softmax)--> tile of probabilities, in place
//! ```
//!
//! [`pack`] and [`mod@unpack`] move data between rows and the NPU's tiles, in whole cache lines on
//! both sides. The other kernels compute on one row or one number at a time. Each has a short
//! definition (`reference`, in its own file or its tests); tests compare the results bit by bit.
//!
//! The body of a kernel is plain Rust in a form that compilers vectorise. It is compiled for
//! AVX-512, AVX2 and the baseline on x86-64, selected at run time (`dispatch.rs`), and for NEON,
//! the baseline, on aarch64. Only these use intrinsics: f16 conversions, exponentials, the Hadamard
//! transform on NEON, and prefetching. [`mod@multiply`] uses the dot products of ARMv8.2, detected
//! at run time, where the CPU would wait for the NPU. f16 arithmetic has no use here: only the NPU
//! multiplies floats and adds them up.
//!
//! This crate knows no precision, plan or device; callers pass the shape of a tile as numbers.
#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the RK3588 is little endian, and so are the buffers shared with its NPU");

#[macro_use]
mod dispatch;

pub mod hadamard;
pub mod half;
pub mod matrix;
pub mod multiply;
pub mod nibble;
pub mod pack;
mod prefetch;
pub mod quantise;
pub mod softmax;
pub mod transpose;
pub mod unpack;

pub use matrix::MatrixView;

/// Bytes of an atom, the unit in which the NPU addresses feature and output cubes (E-atom). This
/// constant is independent of the register table; npu-matmul compares the two.
pub const ATOM_BYTES: usize = 16;

/// Bytes of a cache line, on the RK3588's cores and others (Arm, Cortex-A76 and Cortex-A55 TRMs,
/// memory system).
const LINE_BYTES: usize = 64;
