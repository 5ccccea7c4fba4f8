// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix products on the RK3588 NPU.
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the RK3588 is little endian, and so are the buffers shared with its NPU");

pub mod dtype;
pub mod layout;
pub mod matrix;
pub mod pack;
pub mod quantise;
pub mod reference;
pub mod unpack;
