// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that the linker of rknpu-regcmd may refuse, run on a device or on a model
//! that plays one: an [`Experiment`] is data, `runner` runs it.

mod data;
mod interrupts;
pub(crate) mod operands;
pub(crate) mod runner;
mod template;

pub(crate) use data::{Experiment, ExperimentJob, OUT, OutcomeOrder, Placement, input};
pub(crate) use runner::SeenJob;
pub(crate) use template::{ALU_ADD, TaskTemplate, single};

use std::sync::Arc;
use std::time::Duration;

use npu_model::{Level, Model, ModelOptions};
use rknpu_chip::Contested;

/// A model that does what silicon does on these sides of contested facts, without a word,
/// and that does not take the time of a hang.
pub(crate) fn model(contested: Contested) -> Arc<Model> {
    Model::new(ModelOptions {
        level: Level::Silent,
        contested,
        hang_timeout: Duration::ZERO,
        ..ModelOptions::default()
    })
}
