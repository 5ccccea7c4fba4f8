// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activation rows in the engine's form, and the correction of outputs that this requires.

use std::borrow::Cow;

use half::f16;
use npu_matmul::{Activations, Engine, Scratch, Section};
use npu_offload::ComputeType;
use rayon::prelude::*;

use crate::mul_mat_error::MulMatError;
use crate::quants;

/// Memory for rows of later matmuls.
#[derive(Debug, Default)]
pub(crate) struct RowScratch {
    /// For rows in FP16.
    pub(crate) halves: Scratch<f16>,
    /// For rows that are not contiguous, and for outputs that are set aside.
    pub(crate) floats: Scratch<f32>,
}

/// Activations in the form that the engine multiplies.
#[derive(Debug)]
enum EngineRows<'a> {
    /// For FP16 weights.
    Halves(Vec<f16>),
    /// For quantised weights; the engine quantises the activations in the same way.
    Floats(Cow<'a, [f32]>),
}

/// Prepared activations, and the factors of their outputs.
#[derive(Debug)]
pub(super) struct PreparedRows<'a> {
    rows: EngineRows<'a>,
    /// One for each row; empty for rows that the engine quantises, since that itself makes the
    /// outputs of bad rows NaN.
    factors: Vec<f32>,
}

impl<'a> PreparedRows<'a> {
    /// Rounds rows of `k` elements to FP16, if weights in `precision` need that.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(super) fn new(
        engine: &Engine,
        scratch: &RowScratch,
        precision: ComputeType,
        k: usize,
        activations: Cow<'a, [f32]>,
    ) -> Result<Self, MulMatError> {
        if precision.quantisation().is_some() {
            return Ok(Self {
                rows: EngineRows::Floats(activations),
                factors: Vec::new(),
            });
        }
        let mut rounded = scratch.halves.take(activations.len())?;
        let factors = activations
            .par_chunks_exact(k)
            .zip(rounded.par_chunks_exact_mut(k))
            .map_init(
                || engine.stopwatch(Section::Pack),
                |_, (row, rounded)| quants::round_to_f16(row, rounded),
            )
            .collect();
        if let Cow::Owned(floats) = activations {
            scratch.floats.put(floats);
        }
        Ok(Self {
            rows: EngineRows::Halves(rounded),
            factors,
        })
    }

    /// The activations for a call of the engine.
    pub(super) fn activations(&self) -> Activations<'_> {
        match &self.rows {
            EngineRows::Halves(halves) => halves.into(),
            EngineRows::Floats(floats) => floats.as_ref().into(),
        }
    }

    /// Corrects outputs, in rows of `n`, to those of the rows before they were prepared. `columns`
    /// are the factors of the weights' rows, if there are any.
    pub(super) fn correct(&self, columns: &[f32], n: usize, out: &mut [f32]) {
        for (factor, outputs) in self.factors.iter().zip(out.chunks_exact_mut(n)) {
            quants::scale_outputs(*factor, columns, outputs);
        }
    }

    /// Keeps their memory for later calls.
    pub(super) fn recycle(self, scratch: &RowScratch) {
        match self.rows {
            EngineRows::Halves(halves) => scratch.halves.put(halves),
            EngineRows::Floats(Cow::Owned(floats)) => scratch.floats.put(floats),
            EngineRows::Floats(Cow::Borrowed(_)) => {}
        }
    }
}
