// SPDX-License-Identifier: MIT OR Apache-2.0
//! What more than one yardstick measures.

pub mod kernels;
