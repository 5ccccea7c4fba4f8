// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job of a plan -> register programs.

use rknpu_regcmd::{
    AddError, AddTask, BufferId, ChipProfile, LaidOutTask, MatmulError, MatmulTask, MatmulType,
    Program, Reuse,
};
use thiserror::Error;

use crate::plan::{JobPlan, SumPlace, SumPlan, TaskPlan};

/// The activation buffer in a program's addresses.
pub const ACTIVATIONS: BufferId = BufferId(0);

/// The weight block.
pub const WEIGHTS: BufferId = BufferId(1);

/// The output buffer.
pub const OUTPUT: BufferId = BufferId(2);

/// The buffer of partial results, in a job whose K tiles the NPU adds up.
pub const PARTIALS: BufferId = BufferId(3);

/// A task that has no program: the rule that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IllegalTask {
    /// The program of a product.
    #[error(transparent)]
    Product(#[from] MatmulError),
    /// The program of a sum.
    #[error(transparent)]
    Sum(#[from] AddError),
}

/// One program for each task of the job, in order, and for each sum. What the
/// task before left in CBUF is not fetched again.
///
/// # Errors
/// The rule that a task breaks; plans that were checked break none.
pub fn programs(job: &JobPlan) -> Result<Vec<Program>, IllegalTask> {
    let results = if job.sums.is_empty() {
        OUTPUT
    } else {
        PARTIALS
    };
    let before = std::iter::once(None).chain(job.tasks.iter().map(Some));
    let tasks = job.tasks.iter().zip(before);
    let tasks = tasks.map(|(task, before)| Ok(program_into(results, job.ty, task, before)?));
    let sums = job.sums.iter().map(|task| Ok(sum(task)?));
    tasks.chain(sums).collect()
}

/// The program of an addition.
///
/// # Errors
/// The rule that it breaks; plans that were checked break none.
pub fn sum(sum: &SumPlan) -> Result<Program, AddError> {
    AddTask {
        width: sum.width,
        channels: sum.channels,
        a: PARTIALS.at(sum.a),
        b: PARTIALS.at(sum.b),
        c: match sum.to {
            SumPlace::Partials(offset) => PARTIALS.at(offset),
            SumPlace::Output(offset) => OUTPUT.at(offset),
        },
    }
    .program()
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
) -> Result<Program, MatmulError> {
    program_into(OUTPUT, ty, task, before)
}

fn program_into(
    results: BufferId,
    ty: MatmulType,
    task: &TaskPlan,
    before: Option<&TaskPlan>,
) -> Result<Program, MatmulError> {
    let task = product(results, ty, task);
    let chip = &ChipProfile::RK3588;
    match before {
        None => task.program(chip),
        Some(before) => task.program_after(&product(results, ty, before), chip),
    }
}

/// What of `before`'s operands a task finds in CBUF; nothing where one of the
/// two is not legal.
#[must_use]
pub fn reuse(ty: MatmulType, task: &TaskPlan, before: Option<&TaskPlan>) -> Reuse {
    let of = |task| product(OUTPUT, ty, task);
    let of = |before| of(task).reuse_after(&of(before), &ChipProfile::RK3588);
    before.map_or_else(Reuse::default, |before| of(before).unwrap_or_default())
}

fn product(results: BufferId, ty: MatmulType, task: &TaskPlan) -> LaidOutTask {
    let product = MatmulTask {
        ty,
        m: task.m_padded,
        k: task.k_padded,
        n: task.n_padded,
        a: ACTIVATIONS.at(task.a),
        b: WEIGHTS.at(task.b),
        c: results.at(task.c),
    };
    product.laid_out(task.layouts)
}
