// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that several benchmarks share.

pub mod host;
pub mod kernels;
