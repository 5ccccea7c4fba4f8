// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs host matrices into the layouts of [`crate::layout`].
//!
//! [`npu_kernels::pack`] does the work; this module selects encoding and run lengths for each
//! precision. Padding is written as zeros: buffers are reused, and a zero adds nothing to a sum.

mod act;
mod format;
mod weight;

pub use act::pack_activation;
pub use format::{Format, Fp16, Int4, Int8, SplitInt8};
pub use weight::pack_weight;

#[cfg(test)]
pub(crate) mod tests;
