// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settles contested facts about the chip by experiments: programs whose results differ between
//! the sides of a fact.
//!
//! `list` has the facts and their experiments. `run` runs each, on the device and on a model set
//! to each side.

pub(crate) mod list;
pub(crate) mod report;
mod run;

pub(crate) use run::{choose, is_healthy, settle};
