// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong with a task: the rows of [`rknpu_regcmd::rules`] that its
//! registers break, and what takes more than registers to see.

mod buffer;
mod registers;
mod rules;
mod values;

pub(crate) use buffer::reuse;
pub(crate) use registers::{compression, overflowing, stale};
pub(crate) use rules::{Broken, registers};
pub(crate) use values::TileReport;
