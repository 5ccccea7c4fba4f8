// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole programs: our own, those of the known generators, and random ones.

// A helper that unwraps is a test that fails.
#![allow(clippy::unwrap_used, clippy::panic)]

mod goldens;
mod known;
mod linking;
mod matmul;
mod product;
mod random;
mod ranges;
mod row_major;
mod timing;
