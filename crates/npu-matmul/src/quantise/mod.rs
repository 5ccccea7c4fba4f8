// SPDX-License-Identifier: MIT OR Apache-2.0
//! Symmetric quantisation: integers with a scale for each row of a matrix.
//!
//! A row x becomes integers q in -127..=127 and a scale s with x ~ s * q, where s = max|x| / 127
//! and q = round(x / s), halves to even. A row is one token of the activations, or one output
//! channel of the weights B[N, K]. A sum is dequantised as `i32 * row scale * column scale`.
//!
//! Special rows:
//!  - A row of zeros, or one whose scale would be subnormal (max|x| below about 1.5e-36), becomes
//!    zeros with scale 0.
//!  - A row with a NaN or infinity becomes zeros with scale NaN. All results that depend on it are
//!    NaN; other results are unaffected.
//!
//! [`Quantisation`] lists the schemes of an engine. [`search`] finds scales that clip, [`rotate`]
//! makes rows that need no clipping, and [`loss`] measures both.

pub mod loss;
pub mod rotate;
mod rows;
mod scheme;
pub mod search;

pub use npu_kernels::dequantise::dequantise;
pub use rows::{INT8_MAX, quantise_row, quantise_rows, row_scale};
pub use scheme::{INT8_K_MAX, Quantisation};
