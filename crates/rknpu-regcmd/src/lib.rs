// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register command programs of the RK3588 NPU.
//!
//! The NPU has no instructions: a *task* is a set of register values, given as
//! an array of 64-bit command words. This crate declares every register once
//! ([`regs`]) and builds on that table: typed registers, programs with symbolic
//! addresses, decoding, and what a task touches in memory.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod field;
mod regfile;
pub mod regs;
mod word;

pub use field::{
    Access, AddressRegister, FieldInfo, FieldRangeError, Kind, Register, RegisterInfo,
};
pub use regfile::RegisterFile;
pub use regs::{all, lookup};
pub use word::{Block, EnableMask, Iova, Word};
