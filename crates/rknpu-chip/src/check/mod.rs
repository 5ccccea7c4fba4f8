// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong with a task: the rows of [`rknpu_regcmd::rules`] that its
//! registers break, and what takes more than registers to see.

mod buffer;
mod registers;
mod rules;
mod stale;
mod sums;
mod values;

use rknpu_regcmd::{Register, RegisterFile};

pub(crate) use buffer::{few_grains, reuse, short_height};
pub(crate) use registers::{compression, correction, delta, overflowing};
pub(crate) use rules::{Broken, registers};
pub(crate) use stale::stale;
pub(crate) use sums::{Spoiled, sums};
pub(crate) use values::Watch;

/// A register's name and value, as a diagnosis shows it.
pub(crate) fn shown<R: Register>(regs: &RegisterFile) -> (&'static str, u32) {
    (R::INFO.name, regs.get::<R>().bits())
}
