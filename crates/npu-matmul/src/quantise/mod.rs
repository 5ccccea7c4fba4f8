// SPDX-License-Identifier: MIT OR Apache-2.0
//! Symmetric quantisation: integers, and a scale for each row of a matrix.
//!
//! A row x becomes integers q in -127..=127 and a scale s with x ~ s * q,
//! where s = max|x| / 127 and q = round(x / s), halves to even. For
//! activations a row is one token, for weights B[N, K] one output channel, so
//! a product is dequantised as `i32 * row scale * column scale`.
//!
//! What is not a number that can be scaled:
//! - a row of zeros, and one whose scale would be subnormal (max|x| below
//!   about 1.5e-36), becomes zeros with scale 0;
//! - a row with a NaN or an infinity becomes zeros with scale NaN: all
//!   results that depend on it are NaN, as they could be in float arithmetic,
//!   and no other result is touched.
//!
//! [`Quantisation`] has the ways of an engine. [`search`] finds scales that clip,
//! [`rotate`] makes rows that need no clipping, and [`loss`] measures both.

pub mod loss;
pub mod rotate;
mod rows;
mod scheme;
pub mod search;

pub use npu_kernels::dequantise::dequantise;
pub use rows::{INT8_MAX, quantise_row, quantise_rows, row_scale};
pub use scheme::{INT8_K_MAX, Quantisation};
