// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs that the linker of rknpu-regcmd may refuse, on a device or on a model set
//! to one side of a fact: an [`Experiment`] is data, `runner` runs it.

mod data;
mod interrupts;
pub(crate) mod operands;
pub(crate) mod runner;
mod template;

pub(crate) use data::{Experiment, ExperimentJob, OUT, Placement, input};
pub(crate) use runner::SeenJob;
pub(crate) use template::{ALU_ADD, TaskTemplate, change, fields, put, word_of};

use rknpu_regcmd::{ChipProfile, MatmulTask, Program, ProgramOptions};

/// Programs of matmuls that run one after another in a job. `options` decide what each may
/// reuse from the one before.
pub(crate) fn chained(
    matmuls: impl IntoIterator<Item = MatmulTask>,
    options: &ProgramOptions,
) -> anyhow::Result<Vec<Program>> {
    let chip = &ChipProfile::RK3588;
    let mut before: Option<MatmulTask> = None;
    let programs = matmuls.into_iter().map(|matmul| {
        let program = match before.replace(matmul) {
            None => matmul.program_with(options, chip),
            Some(before) => matmul.program_after(&before, options, chip),
        };
        Ok(program?)
    });
    programs.collect()
}
