// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are tables of rknpu-regcmd.

pub(crate) mod registers;
pub(crate) mod rules;
