// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products as rungs run them: operands in the NPU's own layouts, of random bytes whose
//! sums are exact in every order, so that one result is right and no other.

use rknpu_regcmd::{
    ChipProfile, LaidOutTask, Layouts, MatmulForm, MatmulTask, MatmulType, ProgramOptions,
    ReuseRule,
};

use crate::experiment::operands::{fp16s, int8s};
use crate::experiment::{Experiment, ExperimentJob, OUT, TaskTemplate, input};

/// Products with one A: their common sizes, and the columns of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct RungProduct {
    pub(super) ty: MatmulType,
    pub(super) rows: u32,
    pub(super) depth: u32,
    /// Columns of the products, which are tasks of one job.
    pub(super) columns: &'static [u32],
    /// How their programs are made.
    pub(super) options: ProgramOptions,
}

/// Programs as built-in profiles have them, but for reuse: form B, and for int8 a spare
/// data bank.
pub(super) const fn proven(ty: MatmulType) -> ProgramOptions {
    ProgramOptions {
        form: MatmulForm::B,
        spare_data_bank: matches!(ty, MatmulType::Int8ToInt32),
        reuse: ReuseRule::Never,
    }
}

impl RungProduct {
    pub(super) const fn new(
        ty: MatmulType,
        rows: u32,
        depth: u32,
        columns: &'static [u32],
    ) -> Self {
        let options = proven(ty);
        Self {
            ty,
            rows,
            depth,
            columns,
            options,
        }
    }

    /// The job, with its operands.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let Self {
            ty, rows, depth, ..
        } = *self;
        let mut tasks = Vec::new();
        let mut before: Option<LaidOutTask> = None;
        let (mut weights, mut results) = (0, 0);
        for &n in self.columns {
            let task = MatmulTask {
                ty,
                m: rows,
                k: depth,
                n,
                a: input(0).at(0),
                b: input(1).at(weights),
                c: OUT.at(results),
            };
            weights += task.b_bytes() as u32;
            results += task.c_bytes() as u32;
            let task = task.laid_out(Layouts::default());
            let (chip, options) = (&ChipProfile::RK3588, &self.options);
            let program = match &before {
                Some(before) => task.program_after(before, options, chip)?,
                None => task.program(options, chip)?,
            };
            tasks.push(TaskTemplate::of(&program));
            before = Some(task);
        }
        let features = u64::from(rows * depth * ty.operand().bits() / 8);
        let inputs = vec![
            operand(ty, features as usize, 1),
            operand(ty, weights as usize, 2),
        ];
        let mut experiment = Experiment::of_each(inputs, results as usize, []);
        experiment.jobs = vec![ExperimentJob::of(tasks)];
        Ok(experiment)
    }
}

/// Random bytes that are operands of this type.
fn operand(ty: MatmulType, bytes: usize, seed: u64) -> Vec<u8> {
    match ty {
        MatmulType::Int8ToInt32 | MatmulType::Int4ToInt16 => int8s(bytes, seed),
        MatmulType::Fp16ToFp32 | MatmulType::Fp16ToFp16 => fp16s(bytes / 2, seed),
    }
}
