// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the chip with programs known from silicon, and with malformed ones.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod activations;
mod board;
mod board_matmul;
mod tensor;

mod chains;
mod clients;
mod contested;
mod convolution;
mod elementwise;
mod extents;
mod golden;
mod kick;
mod layouts;
mod matmul;
mod mesa;
mod pooling;
mod robust;
mod rules;
mod traps;
mod traps_operands;
