// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job of a plan -> register programs.

use rknpu_regcmd::{BufferId, ChipProfile, MatmulError, MatmulTask, MatmulType, Program};

use crate::plan::{JobPlan, TaskPlan};

/// The activation buffer in a program's addresses.
pub const ACTIVATIONS: BufferId = BufferId(0);

/// The weight block.
pub const WEIGHTS: BufferId = BufferId(1);

/// The output buffer.
pub const OUTPUT: BufferId = BufferId(2);

/// One program for each task of the job, in order.
///
/// # Errors
/// The rule that a task breaks; plans that were checked break none.
pub fn programs(job: &JobPlan) -> Result<Vec<Program>, MatmulError> {
    job.tasks.iter().map(|task| program(job.ty, task)).collect()
}

/// The program of one task.
///
/// # Errors
/// The rule that it breaks; plans that were checked break none.
pub fn program(ty: MatmulType, task: &TaskPlan) -> Result<Program, MatmulError> {
    MatmulTask {
        ty,
        m: task.m_padded,
        k: task.k_padded,
        n: task.n_padded,
        a: ACTIVATIONS.at(task.a),
        b: WEIGHTS.at(task.b),
        c: OUTPUT.at(task.c),
    }
    .program(&ChipProfile::RK3588)
}
