// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of whole programs: our own, those of the known generators, and random ones.

// A panic in a helper fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod asm;
mod goldens;
mod helpers;
mod known;
mod linking;
mod matmul;
mod random;
mod ranges;
mod timing;
