// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NPU's result of a matmul.

use std::ops::Range;

use half::f16;
use npu_matmul::{Engine, Error, Output, OutputRows, PackedWeights, Results};

use crate::data::MatmulOperands;

/// The NPU's result of a matmul.
#[derive(Clone, Debug)]
pub(crate) enum MatmulResult {
    Integers(Vec<i32>),
    Floats(Vec<f32>),
    /// Sums of FP16 operands, rounded to binary16.
    Halves(Vec<f16>),
}

impl MatmulResult {
    /// The element type of such a result.
    pub(crate) const fn output(operands: &MatmulOperands, results: Results) -> Output {
        match (operands, results) {
            (MatmulOperands::Integers { .. }, _) => Output::I32,
            (MatmulOperands::Floats { .. }, Results::Sums)
            | (MatmulOperands::Quantised { .. }, _) => Output::F32,
            (MatmulOperands::Floats { .. }, Results::Halves) => Output::F16,
        }
    }

    /// Space for `len` elements, filled with an unlikely value that shows unwritten
    /// elements.
    pub(crate) fn unwritten(operands: &MatmulOperands, results: Results, len: usize) -> Self {
        match Self::output(operands, results) {
            Output::I32 => Self::Integers(vec![i32::MIN; len]),
            Output::F32 => Self::Floats(vec![f32::NAN; len]),
            Output::F16 => Self::Halves(vec![f16::NAN; len]),
        }
    }

    /// Multiplies `m` rows on the NPU.
    pub(crate) fn multiply(
        &mut self,
        engine: &Engine,
        weights: &PackedWeights,
        m: usize,
        operands: &MatmulOperands,
    ) -> Result<(), Error> {
        let c: OutputRows<'_> = match self {
            Self::Integers(c) => c.into(),
            Self::Floats(c) => c.into(),
            Self::Halves(c) => c.into(),
        };
        let gemm = engine.prepare(weights, m, c.output())?;
        gemm.run(operands.activations(), c)
    }

    /// The given rows of the result; each has `n` elements.
    pub(crate) fn rows(&self, rows: Range<usize>, n: usize) -> Self {
        let part = rows.start * n..rows.end * n;
        match self {
            Self::Integers(c) => Self::Integers(c[part].to_vec()),
            Self::Floats(c) => Self::Floats(c[part].to_vec()),
            Self::Halves(c) => Self::Halves(c[part].to_vec()),
        }
    }
}
