// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products as rungs run them: operands in the NPU's own layouts, of random bytes whose
//! sums are exact in every order, so that one result is right and no other.

use rknpu_regcmd::{MatmulForm, MatmulTask, MatmulType, ProgramOptions, ReuseRule};

use crate::experiment::operands::{fp16s, int8s};
use crate::experiment::{Experiment, ExperimentJob, OUT, TaskTemplate, chained, input};

/// Products that share an operand: their common sizes, and the columns of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct RungProduct {
    pub(super) ty: MatmulType,
    pub(super) rows: u32,
    pub(super) depth: u32,
    /// Columns of the products, which are tasks of one job.
    pub(super) columns: &'static [u32],
    /// Which operand all of them have.
    pub(super) shared: SharedOperand,
    /// How their programs are made.
    pub(super) options: ProgramOptions,
}

/// The operand that the products of a rung share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedOperand {
    /// A, the features: each product has weights of its own.
    Features,
    /// B, the weights: each product has features of its own.
    Weights,
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
            shared: SharedOperand::Features,
            options,
        }
    }

    /// The job, with its operands.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let Self {
            ty, rows, depth, ..
        } = *self;
        let (mut features, mut weights, mut results) = (0, 0, 0);
        let products = self.columns.iter().map(|&n| {
            let (a, b) = match self.shared {
                SharedOperand::Features => (0, weights),
                SharedOperand::Weights => (features, 0),
            };
            let product = MatmulTask {
                ty,
                m: rows,
                k: depth,
                n,
                a: input(0).at(a),
                b: input(1).at(b),
                c: OUT.at(results),
            };
            features = a + product.a_bytes() as u32;
            weights = b + product.b_bytes() as u32;
            results += product.c_bytes() as u32;
            product
        });
        let programs = chained(products, &self.options)?;
        let tasks = programs.iter().map(TaskTemplate::of).collect();
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
