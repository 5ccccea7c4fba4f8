// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the CPU does for a matrix product on the NPU, at memory speed.
//!
//! ```text
//! rows of A or B --(encode: quantise, to f16, nibbles)--> runs --(order)--> tile
//! tile of C --(order, add up, dequantise)--> rows of sums or floats
//! rows of floats --(Hadamard)--> rows that quantise better
//! tile of scores --(mask, softmax)--> tile of probabilities, in place
//! ```
//!
//! [`pack`] and [`mod@unpack`] put things in order: they move data between
//! rows and the NPU's tiles, whole cache lines on both sides. The others
//! compute on one row at a time, or on one number. Each has a definition in a
//! few lines (`reference`, in its own file or its tests) that it is held to,
//! bit by bit.
//!
//! How a kernel gets its vector instructions: its body is plain Rust in a shape
//! that compilers vectorise, compiled once for each instruction set and chosen
//! at run time (`dispatch.rs`): AVX-512, AVX2 or the baseline on x86-64; on
//! aarch64 NEON, which is the baseline. Only the conversions to and from f16, the
//! exponentials, for NEON the Hadamard transform, and what asks for cache lines ahead need
//! intrinsics. The
//! dot products of ARMv8.2 and arithmetic in f16 have no use here: nothing is
//! multiplied and added up but by the NPU.
//!
//! This crate knows no precision, no plan and no device; the shape of a tile
//! comes as numbers.
#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the RK3588 is little endian, and so are the buffers shared with its NPU");

#[macro_use]
mod dispatch;

pub mod dequantise;
pub mod hadamard;
pub mod half;
pub mod matrix;
pub mod nibble;
pub mod pack;
mod prefetch;
pub mod quantise;
pub mod softmax;
pub mod transpose;
pub mod unpack;

pub use matrix::MatrixView;

/// Bytes of an atom, the unit in which the NPU addresses feature and output
/// cubes (E-atom); an independent witness of the register table's, which npu-matmul
/// compares.
pub const ATOM_BYTES: usize = 16;

/// Bytes of a cache line, of the RK3588's cores and of others (Arm, Cortex-A76
/// and Cortex-A55 TRMs, memory system).
const LINE_BYTES: usize = 64;
