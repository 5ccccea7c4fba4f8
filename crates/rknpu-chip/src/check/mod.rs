// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traps that the registers of a task show before it runs.
//!
//! Each function is one group of traps and tells the rule, the registers that
//! break it, and what to change. Numbers are those of the list in
//! docs/model.md, which has the evidence.

mod addresses;
mod buffer;
mod flying;
mod operands;
mod registers;
mod stale;
mod stream;
mod sums;
mod values;
mod writer;

use rknpu_regcmd::{Register, RegisterFile};

pub(crate) use addresses::addresses;
pub(crate) use buffer::{cbuf, entries, fc_data_bank, few_grains, lines, reuse, short_height};
pub(crate) use flying::{
    TRAILING, WIDTH_LIMIT, comb_use_flying, converted_product, flying_stream, orig_channel,
};
pub(crate) use operands::read_engines;
pub(crate) use registers::{compression, correction, delta, overflowing};
pub(crate) use stale::stale;
pub(crate) use stream::stream;
pub(crate) use sums::{Spoiled, sums};
pub(crate) use values::Watch;
pub(crate) use writer::writer;

/// A register's name and value, as a diagnosis shows it.
pub(crate) fn shown<R: Register>(regs: &RegisterFile) -> (&'static str, u32) {
    (R::INFO.name, regs.get::<R>().bits())
}
