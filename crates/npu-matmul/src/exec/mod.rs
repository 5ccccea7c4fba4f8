// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs products: pack, submit to all devices, wait, unpack and add up.
//!
//! ```text
//! for each wave (the next steps, of as many products as belong together):
//!     on each device:  pack A -> link programs -> one SUBMIT   (start)
//! for each wave, in the same order:
//!     for each job:    wait -> unpack C, add up, scale         (finish)
//! ```
//!
//! All waves that have room are started before the first is finished, so that the NPU
//! computes while the CPU packs the next, and the CPU unpacks while the NPU computes.
//! `wave` has that; `job` what happens to one job, `product` how the matrices of a
//! product become buffers and buffers its matrix.

mod job;
mod product;
mod run;
mod wave;

pub(crate) use job::{OnDevice, link};
pub(crate) use product::{Epilogue, Operand, Product};
pub(crate) use run::ProductRun;
