// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's interface as its headers define it, and the meaning of request numbers.

mod abi;
mod request;

pub use abi::*;
pub use request::{ARG_LEN_MAX, HandleChange, arg_len, is_call, letter, structure, writes_arg};
