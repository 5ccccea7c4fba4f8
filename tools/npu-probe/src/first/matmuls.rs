// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of rungs, and changes of them. Operands are in the NPU's layouts, of random bytes
//! whose sums are exact in every order, so only one result is right.

use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::{MatmulForm, MatmulTask, MatmulType, ProgramOptions, ReuseRule};

use crate::calibrate::facts::flying::{FlyingOperation, flying};
use crate::experiment::operands::{fp16s, int8s, make_subnormal};
use crate::experiment::{Experiment, OUT, Placement, TaskTemplate, chained, input};

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
        let mut experiment = Experiment::of_job(inputs, results as usize, tasks);
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

/// The buffers of a matmul, without a job.
pub(super) fn idle() -> anyhow::Result<Experiment> {
    let mut experiment = fp16(4, 32, &[16]).experiment()?;
    experiment.jobs.clear();
    Ok(experiment)
}

/// A matmul of form A, behind an addition that leaves DPU_RDMA programmed.
pub(super) fn form_a_behind_flying() -> anyhow::Result<Experiment> {
    let mut experiment = fp16(4, 32, &[16]).form_a().experiment()?;
    let addition = flying(FlyingOperation::Add, [0.0; 8], [0.0; 8])?;
    // The addition reads the first atoms of the matmul's operands, and writes behind
    // its results.
    let results = experiment.output;
    experiment.output += addition.output;
    let additions = addition.jobs.into_iter().flat_map(|job| job.tasks);
    for (job, mut addition) in experiment.jobs.iter_mut().zip(additions) {
        addition.put_address::<dpu::DstBaseAddr>(OUT.at(results as u32));
        job.tasks.insert(0, addition);
    }
    Ok(experiment)
}

/// A matmul of subnormals: in a pair of a row and a column, none, one or both are
/// subnormal.
pub(super) fn subnormals() -> anyhow::Result<Experiment> {
    const ROWS: usize = 4;
    const CHANNELS: usize = 32;
    /// fp16 values per atom.
    const ATOM: usize = 8;
    let mut experiment = fp16(ROWS as u32, CHANNELS as u32, &[16]).experiment()?;
    if let [features, weights] = &mut experiment.inputs[..] {
        make_subnormal(features, 3, |index| index / ATOM % ROWS >= 2);
        make_subnormal(weights, 4, |index| index / CHANNELS >= 8);
    }
    Ok(experiment)
}
