// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traps that the registers of a task show before it runs.
//!
//! Each function is one group of traps and tells the rule, the registers that
//! break it, and what to change. Numbers are those of the list in
//! docs/model.md, which has the evidence.

mod buffer;
mod flying;
mod operands;
mod registers;
mod stream;
mod writer;

use rknpu_regcmd::{Register, RegisterFile};

pub(crate) use buffer::{cbuf, entries, fc_data_bank, lines, reuse};
pub(crate) use flying::{comb_use_flying, flying_stream};
pub(crate) use operands::read_engines;
pub(crate) use registers::{compression, correction, delta};
pub(crate) use stream::stream;
pub(crate) use writer::writer;

/// A register's name and value, as a diagnosis shows it.
pub(crate) fn shown<R: Register>(regs: &RegisterFile) -> (&'static str, u32) {
    (R::INFO.name, regs.get::<R>().bits())
}
