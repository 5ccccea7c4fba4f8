// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs that the linker of rknpu-regcmd may refuse, on a device or on a model set
//! to one side of a fact: an [`Experiment`] is data, `runner` runs it.

mod data;
mod interrupts;
pub(crate) mod judge;
pub(crate) mod matmul;
pub(crate) mod programs;
pub(crate) mod record;
pub(crate) mod runner;
mod template;

pub(crate) use data::{Experiment, ExperimentWitness, OUT, Placement, input};
pub(crate) use runner::SeenJob;
pub(crate) use template::{ALU_ADD, TaskTemplate, change, put, word_of};
