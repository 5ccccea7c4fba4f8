// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of rungs. Operands are in the NPU's layouts, of random bytes whose sums are exact
//! in every order, so only one result is right.

use rknpu_regcmd::{MatmulForm, MatmulTask, MatmulType, ProgramOptions, ReuseRule};

use crate::experiment::operands::{fp16s, int8s};
use crate::experiment::{Experiment, ExperimentJob, OUT, Placement, TaskTemplate, chained, input};

/// Matmuls that share an operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct RungMatmul {
    ty: MatmulType,
    rows: u32,
    depth: u32,
    /// Columns of each matmul; each is one task of the same job.
    columns: &'static [u32],
    /// Whether they share the weights and have separate features; otherwise they share the
    /// features.
    same_weights: bool,
    options: ProgramOptions,
    placement: Placement,
}

/// A matmul with the options of built-in profiles, but without reuse: form B, and for int8 a
/// spare data bank.
const fn matmul(ty: MatmulType, rows: u32, depth: u32, columns: &'static [u32]) -> RungMatmul {
    RungMatmul {
        ty,
        rows,
        depth,
        columns,
        same_weights: false,
        options: ProgramOptions {
            form: MatmulForm::B,
            spare_data_bank: matches!(ty, MatmulType::Int8ToInt32),
            reuse: ReuseRule::Never,
        },
        placement: Placement::Guarded,
    }
}

pub(super) const fn fp16(rows: u32, depth: u32, columns: &'static [u32]) -> RungMatmul {
    matmul(MatmulType::Fp16ToFp32, rows, depth, columns)
}

pub(super) const fn int8(rows: u32, depth: u32, columns: &'static [u32]) -> RungMatmul {
    matmul(MatmulType::Int8ToInt32, rows, depth, columns)
}

pub(super) const fn int4(rows: u32, depth: u32, columns: &'static [u32]) -> RungMatmul {
    matmul(MatmulType::Int4ToInt16, rows, depth, columns)
}

impl RungMatmul {
    pub(super) const fn form_a(mut self) -> Self {
        self.options.form = MatmulForm::A;
        self
    }

    pub(super) const fn reusing(mut self) -> Self {
        self.options.reuse = ReuseRule::Always;
        self
    }

    pub(super) const fn without_spare_bank(mut self) -> Self {
        self.options.spare_data_bank = false;
        self
    }

    pub(super) const fn of_same_weights(mut self) -> Self {
        self.same_weights = true;
        self
    }

    pub(super) const fn placed(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The experiment: one job, with its operands.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let Self {
            ty, rows, depth, ..
        } = *self;
        let (mut features, mut weights, mut results) = (0, 0, 0);
        let matmuls = self.columns.iter().map(|&n| {
            let (a, b) = if self.same_weights {
                (features, 0)
            } else {
                (0, weights)
            };
            let matmul = MatmulTask {
                ty,
                m: rows,
                k: depth,
                n,
                a: input(0).at(a),
                b: input(1).at(b),
                c: OUT.at(results),
            };
            features = a + matmul.a_bytes() as u32;
            weights = b + matmul.b_bytes() as u32;
            results += matmul.c_bytes() as u32;
            matmul
        });
        let programs = chained(matmuls, &self.options)?;
        let tasks = programs.iter().map(TaskTemplate::of).collect();
        let inputs = vec![
            operand(ty, features as usize, 1),
            operand(ty, weights as usize, 2),
        ];
        let mut experiment = Experiment::of_each(inputs, results as usize, []);
        experiment.jobs = vec![ExperimentJob::of(tasks)];
        experiment.placement = self.placement;
        Ok(experiment)
    }
}

/// Random operands of this type, as bytes.
fn operand(ty: MatmulType, bytes: usize, seed: u64) -> Vec<u8> {
    match ty {
        MatmulType::Int8ToInt32 | MatmulType::Int4ToInt16 => int8s(bytes, seed),
        MatmulType::Fp16ToFp32 | MatmulType::Fp16ToFp16 => fp16s(bytes / 2, seed),
    }
}
