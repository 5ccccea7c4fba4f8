// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RK3588 NPU and its kernel driver in software.

pub mod chip;
