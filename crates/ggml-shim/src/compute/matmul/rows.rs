// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activation rows in the engine's form, and the correction of outputs that this requires.

use std::borrow::Cow;

use half::f16;
use npu_matmul::{Activations, Engine, Scratch, Section};
use rayon::prelude::*;

use crate::weights::node_error::NodeFailure;
use crate::weights::quants;

/// Memory for rows of later matmuls.
#[derive(Debug)]
pub(crate) struct RowScratch {
    /// For rows in FP16.
    pub(crate) halves: Scratch<f16>,
    /// For rows that are not contiguous, and for outputs that are set aside.
    pub(crate) floats: Scratch<f32>,
}

impl RowScratch {
    /// Memory within the share of `engine`.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            halves: engine.scratch(),
            floats: engine.scratch(),
        }
    }
}

/// Activations in the form that the engine multiplies.
#[derive(Debug)]
pub(super) enum CallRows<'a> {
    /// For FP16 weights, with a factor for the outputs of each row.
    Halves(Vec<f16>, Vec<f32>),
    /// For quantised weights; the engine quantises the activations in the same way, which itself
    /// makes the outputs of bad rows NaN.
    Floats(Cow<'a, [f32]>),
}

impl<'a> CallRows<'a> {
    /// Takes rows of `k` elements, and rounds them to FP16 if `is_rounded` is set.
    pub(super) fn new(
        engine: &Engine,
        scratch: &RowScratch,
        is_rounded: bool,
        k: usize,
        activations: Cow<'a, [f32]>,
    ) -> Result<Self, NodeFailure> {
        if !is_rounded {
            return Ok(Self::Floats(activations));
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
        Self::Floats(activations).recycle(scratch);
        Ok(Self::Halves(rounded, factors))
    }

    /// The activations for a call of the engine.
    pub(super) fn activations(&self) -> Activations<'_> {
        match self {
            Self::Halves(halves, _) => halves.into(),
            Self::Floats(floats) => floats.as_ref().into(),
        }
    }

    /// Corrects outputs, in rows of `n`, to those of the rows before they were prepared. `columns`
    /// are the factors of the weights' rows, if there are any.
    pub(super) fn correct(&self, columns: &[f32], n: usize, out: &mut [f32]) {
        let Self::Halves(_, factors) = self else {
            return;
        };
        for (factor, outputs) in factors.iter().zip(out.chunks_exact_mut(n)) {
            quants::scale_outputs(*factor, columns, outputs);
        }
    }

    /// Keeps their memory for later calls.
    pub(super) fn recycle(self, scratch: &RowScratch) {
        match self {
            Self::Halves(halves, _) => scratch.halves.put(halves),
            Self::Floats(Cow::Owned(floats)) => scratch.floats.put(floats),
            Self::Floats(Cow::Borrowed(_)) => {}
        }
    }
}
