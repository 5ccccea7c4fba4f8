// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host matrices -> the layouts of [`crate::layout`].
//!
//! A tile is filled front to back, one short run of a row at a time, so the
//! destination is written once and in order; runs that lie outside the matrix
//! are written as zeros, because buffers are reused and a zero adds nothing to
//! a product.

mod act;
mod format;
mod weight;

pub use act::pack_activation;
pub use format::{Format, Fp16, Int4, Int8, first_beyond_int4};
pub use weight::pack_weight;

#[cfg(test)]
pub(crate) mod tests;
