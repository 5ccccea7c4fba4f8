// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls as experiments. Operands are in the NPU's layouts, of random bytes whose sums are
//! exact in every order, so only one result is right.

use half::f16;
use rknpu_regcmd::{
    ChipProfile, MatmulForm, MatmulTask, Program, ProgramOptions, ReuseRule, TaskType,
};

use super::{Experiment, OUT, Placement, TaskTemplate, input};
use crate::matmul::data::SplitMix64;

/// Bits of a random float operand, including its sign: multiples of 1/32 below 2. Sums
/// of 8192 products of these are exact in binary32.
const FLOAT_BITS: u32 = 7;
const FLOAT_STEP: f32 = 1.0 / 32.0;

/// Bits of a subnormal operand, including its sign: fp16 has ten mantissa bits.
const SUBNORMAL_BITS: u32 = 11;

/// Bits of a random operand of 16-bit integers.
const WORD_BITS: u32 = 12;

/// Matmuls that share an operand.
#[derive(Clone, Debug)]
pub(crate) struct ExperimentMatmul {
    ty: TaskType,
    rows: u32,
    depth: u32,
    /// Columns of each matmul; each is one task of the same job.
    columns: Vec<u32>,
    /// Whether they share the weights and have separate features; otherwise they share the
    /// features.
    same_weights: bool,
    pub(crate) options: ProgramOptions,
    placement: Placement,
}

/// A matmul with the options of built-in profiles, but without reuse: form B, and for int8 a
/// spare data bank.
pub(crate) fn matmul(ty: TaskType, rows: u32, depth: u32, columns: &[u32]) -> ExperimentMatmul {
    ExperimentMatmul {
        ty,
        rows,
        depth,
        columns: columns.to_vec(),
        same_weights: false,
        options: ProgramOptions {
            form: MatmulForm::B,
            spare_data_bank: matches!(ty, TaskType::Int8ToInt32),
            reuse: ReuseRule::Never,
        },
        placement: Placement::Guarded,
    }
}

pub(crate) fn fp16(rows: u32, depth: u32, columns: &[u32]) -> ExperimentMatmul {
    matmul(TaskType::Fp16ToFp32, rows, depth, columns)
}

pub(crate) fn int8(rows: u32, depth: u32, columns: &[u32]) -> ExperimentMatmul {
    matmul(TaskType::Int8ToInt32, rows, depth, columns)
}

pub(crate) fn int4(rows: u32, depth: u32, columns: &[u32]) -> ExperimentMatmul {
    matmul(TaskType::Int4ToInt16, rows, depth, columns)
}

impl ExperimentMatmul {
    pub(crate) fn form_a(mut self) -> Self {
        self.options.form = MatmulForm::A;
        self
    }

    pub(crate) fn reusing(mut self) -> Self {
        self.options.reuse = ReuseRule::Always;
        self
    }

    pub(crate) fn without_spare_bank(mut self) -> Self {
        self.options.spare_data_bank = false;
        self
    }

    pub(crate) fn of_same_weights(mut self) -> Self {
        self.same_weights = true;
        self
    }

    pub(crate) fn placed(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The experiment: one job, with its operands.
    pub(crate) fn experiment(&self) -> anyhow::Result<Experiment> {
        let (programs, [features, weights, results]) = self.programs()?;
        let tasks = programs.iter().map(TaskTemplate::of).collect();
        let inputs = vec![operand(self.ty, features, 1), operand(self.ty, weights, 2)];
        let mut experiment = Experiment::of(inputs, results, vec![tasks]);
        experiment.placement = self.placement;
        Ok(experiment)
    }

    /// Its programs, which run one after another in a job; and the bytes of its features, its
    /// weights and its results.
    pub(crate) fn programs(&self) -> anyhow::Result<(Vec<Program>, [usize; 3])> {
        let chip = &ChipProfile::RK3588;
        let (mut features, mut weights, mut results) = (0, 0, 0);
        let mut programs = Vec::new();
        let mut before: Option<MatmulTask> = None;
        for &n in &self.columns {
            let (a, b) = if self.same_weights {
                (features, 0)
            } else {
                (0, weights)
            };
            let matmul = MatmulTask {
                ty: self.ty,
                m: self.rows,
                k: self.depth,
                n,
                a: input(0).at(a),
                b: input(1).at(b),
                c: OUT.at(results),
            };
            features = a + matmul.a_bytes() as u32;
            weights = b + matmul.b_bytes() as u32;
            results += matmul.c_bytes() as u32;
            programs.push(match before.replace(matmul) {
                None => matmul.program_with(&self.options, chip)?,
                Some(before) => matmul.program_after(&before, &self.options, chip)?,
            });
        }
        Ok((
            programs,
            [features, weights, results].map(|len| len as usize),
        ))
    }
}

/// Random operands of this type, as bytes.
fn operand(ty: TaskType, bytes: usize, seed: u64) -> Vec<u8> {
    match ty {
        TaskType::Int8ToInt32 | TaskType::Int4ToInt16 => int8s(bytes, seed),
        TaskType::Fp16ToFp32 | TaskType::Fp16ToFp16 => fp16s(bytes / 2, seed),
    }
}

/// Random bytes: int8 operands, or pairs of int4 operands.
pub(crate) fn int8s(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..len).map(|_| random.signed(8) as u8).collect()
}

pub(crate) fn int16s(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let words = (0..len).map(|_| random.signed(WORD_BITS) as i16);
    words.flat_map(i16::to_le_bytes).collect()
}

/// Random operands of fp16 whose sums are exact in every order.
pub(crate) fn fp16s(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    fp16_bytes((0..len).map(|_| random.signed(FLOAT_BITS) as f32 * FLOAT_STEP))
}

/// The bytes of fp16 values in memory.
pub(crate) fn fp16_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let bytes = |value| f16::from_f32(value).to_le_bytes();
    values.into_iter().flat_map(bytes).collect()
}

/// Replaces fp16 operands with subnormal ones, if `of` accepts their index.
pub(crate) fn make_subnormal(bytes: &mut [u8], seed: u64, of: impl Fn(usize) -> bool) {
    let mut random = SplitMix64::new(seed);
    let operands = bytes.as_chunks_mut::<2>().0.iter_mut().enumerate();
    for (_, operand) in operands.filter(|(index, _)| of(*index)) {
        let value = random.signed(SUBNORMAL_BITS);
        let sign = u16::from(value < 0) << 15;
        *operand = (sign | value.unsigned_abs() as u16).to_le_bytes();
    }
}
