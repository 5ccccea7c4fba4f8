// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix products of any size on the RK3588 NPU.
//!
//! C = A x B^T, with A of M x K (activations), B of N x K (weights) and C of
//! M x N, all row major in host memory. Three precisions: INT8 and INT4 with
//! exact 32-bit results, FP16 with binary32 results; and float products by way
//! of INT8 with a scale for each row of A and of B.
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
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the RK3588 is little endian, and so are the buffers shared with its NPU");

pub mod dtype;
pub mod emit;
pub mod layout;
pub mod matrix;
pub mod pack;
pub mod plan;
pub mod quantise;
pub mod reference;
pub mod unpack;

pub use dtype::Precision;
pub use plan::{Plan, PlanError, PlanOptions};
