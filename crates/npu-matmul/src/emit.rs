// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job of a plan -> register programs.

use rknpu_regcmd::{
    BufferId, ChipProfile, LaidOutTask, Layouts, MatmulError, MatmulTask, MatmulType, Program,
    ProgramOptions, Reuse,
};

use crate::plan::{JobPlan, TaskPlan};

/// The activation buffer in a program's addresses.
pub const ACTIVATIONS: BufferId = BufferId(0);

/// The weight block.
pub const WEIGHTS: BufferId = BufferId(1);

/// The output buffer.
pub const OUTPUT: BufferId = BufferId(2);

/// One program for each task of the job, in order. What the task before left in
/// CBUF, and the plan allows to use, is not fetched again.
///
/// # Errors
/// The rule that a task breaks; plans that were checked break none.
pub fn programs(job: &JobPlan) -> Result<Vec<Program>, MatmulError> {
    let before = std::iter::once(None).chain(job.tasks.iter().map(Some));
    let tasks = job.tasks.iter().zip(before);
    tasks
        .map(|(task, before)| program(job.ty, task, before, &job.program))
        .collect()
}

/// The program of one task, and of what it does not fetch because `before`, the
/// task before it in its job, did.
///
/// # Errors
/// The rule that it breaks; plans that were checked break none.
pub fn program(
    ty: MatmulType,
    task: &TaskPlan,
    before: Option<&TaskPlan>,
    options: &ProgramOptions,
) -> Result<Program, MatmulError> {
    let task = product(ty, task);
    let chip = &ChipProfile::RK3588;
    match before {
        None => task.program(options, chip),
        Some(before) => task.program_after(&product(ty, before), options, chip),
    }
}

/// What of `before`'s operands a task finds in CBUF; nothing where one of the
/// two is not legal.
#[must_use]
pub fn reuse(
    ty: MatmulType,
    task: &TaskPlan,
    before: &TaskPlan,
    options: &ProgramOptions,
) -> Reuse {
    let [task, before] = [task, before].map(|task| product(ty, task));
    task.reuse_after(&before, options, &ChipProfile::RK3588)
        .unwrap_or_default()
}

fn product(ty: MatmulType, task: &TaskPlan) -> LaidOutTask {
    let product = MatmulTask {
        ty,
        m: task.m_padded,
        k: task.k_padded,
        n: task.n_padded,
        a: ACTIVATIONS.at(task.a),
        b: WEIGHTS.at(task.b),
        c: OUTPUT.at(task.c),
    };
    product.laid_out(Layouts::default())
}
