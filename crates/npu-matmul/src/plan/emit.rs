// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emits register programs for a planned job.

use rknpu_regcmd::{
    BufferId, ChipProfile, MatmulError, MatmulTask, Program, ProgramOptions, Reuse,
};

use crate::dtype::Dtype;
use crate::plan::{JobPlan, TaskPlan};

/// The activation buffer in program addresses.
pub const ACTIVATIONS: BufferId = BufferId(0);

/// The weight block in program addresses.
pub const WEIGHTS: BufferId = BufferId(1);

/// The output buffer in program addresses.
pub const OUTPUT: BufferId = BufferId(2);

/// Emits one program for each task of the job, in order. If the plan allows it, a task does not
/// fetch data again that the previous task left in CBUF.
///
/// # Errors
/// The hardware rule that a task breaks; checked plans break none.
pub fn programs(job: &JobPlan) -> Result<Vec<Program>, MatmulError> {
    with_previous(job)
        .map(|(task, before)| program(job.dtype, task, before, &job.program))
        .collect()
}

/// The tasks of a job in order, each with the one before it.
pub fn with_previous(job: &JobPlan) -> impl Iterator<Item = (&TaskPlan, Option<&TaskPlan>)> {
    let before = std::iter::once(None).chain(job.tasks.iter().map(Some));
    job.tasks.iter().zip(before)
}

/// Emits the program of one task. `before` is the previous task in the job, whose data may still be
/// in CBUF.
///
/// # Errors
/// The hardware rule that the task breaks; checked plans break none.
pub fn program(
    dtype: Dtype,
    task: &TaskPlan,
    before: Option<&TaskPlan>,
    options: &ProgramOptions,
) -> Result<Program, MatmulError> {
    let task = matmul(dtype, task);
    let chip = &ChipProfile::RK3588;
    match before {
        None => task.program_with(options, chip),
        Some(before) => task.program_after(&matmul(dtype, before), options, chip),
    }
}

/// The operands that a task finds in CBUF after `before`, the previous task of `job`; none if it is
/// the first, or if one of the two is not legal.
#[must_use]
pub fn reuse(job: &JobPlan, task: &TaskPlan, before: Option<&TaskPlan>) -> Reuse {
    let (task, chip) = (matmul(job.dtype, task), &ChipProfile::RK3588);
    let before = before.map(|before| matmul(job.dtype, before));
    let reuse = before.and_then(|before| task.reuse_after(&before, &job.program, chip).ok());
    reuse.unwrap_or_default()
}

fn matmul(dtype: Dtype, task: &TaskPlan) -> MatmulTask {
    MatmulTask {
        ty: dtype.matmul_type(),
        m: task.m_padded,
        k: task.k_padded,
        n: task.n_padded,
        a: ACTIVATIONS.at(task.a),
        b: WEIGHTS.at(task.b),
        c: OUTPUT.at(task.c),
    }
}
