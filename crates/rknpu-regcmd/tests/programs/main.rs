// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole programs: our own, those of the known generators, and random ones.

// A helper that unwraps is a test that fails.
#![allow(clippy::unwrap_used, clippy::panic)]

mod matmul;
mod random;
mod row_major;
mod sums;

// Hundreds of programs each: too slow for Miri, and there is no unsafe code.
#[cfg(not(miri))]
mod known;
#[cfg(not(miri))]
mod linking;
#[cfg(not(miri))]
mod ranges;
#[cfg(not(miri))]
mod timing;
