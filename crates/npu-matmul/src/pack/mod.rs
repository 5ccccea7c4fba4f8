// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host matrices -> the layouts of [`crate::layout`].
//!
//! [`npu_kernels::pack`] does the work; here is which encoding and which runs
//! a precision has. What lies outside the matrix is written as zeros, because
//! buffers are reused and a zero adds nothing to a product.

mod act;
mod format;
mod weight;

pub use act::pack_activation;
pub use format::{Format, Fp16, Int4, Int8, SplitInt8};
pub use weight::pack_weight;

#[cfg(test)]
pub(crate) mod tests;
