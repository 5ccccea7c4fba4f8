// SPDX-License-Identifier: MIT OR Apache-2.0
//! One activation matrix times one weight matrix: what the engine is given, and
//! what is done to its rows before and to its outputs after.

use std::borrow::Cow;

use half::f16;
use npu_matmul::quantise::Quantisation;
use npu_matmul::{Section, Stopwatch};
use rayon::prelude::*;

use crate::memory::{self, OutOfMemory};
use crate::pack::PackedMatrix;
use crate::quants::{self, RowCorrection};
use crate::supports::Offload;

/// What multiplies: the engine, or in tests something simpler.
pub(crate) trait MatrixMultiplier: Sync {
    /// A packed weight matrix.
    type Weights;
    /// Why a product or a packing failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Measures what is done for a product outside of it; `None` if nobody
    /// wants to know.
    fn stopwatch(&self, _section: Section) -> Option<Stopwatch<'_>> {
        None
    }

    /// Packs `n` rows of `k` FP16 weights.
    fn load_f16(&self, n: usize, k: usize, weights: &[f16]) -> Result<Self::Weights, Self::Error>;

    /// Quantises `n` rows of `k` weights;
    /// `fill(index, row)` writes a row, maybe in several threads.
    fn load_quantised(
        &self,
        n: usize,
        k: usize,
        to: Quantisation,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Self::Weights, Self::Error>;

    /// Computes products that do not depend on each other, all in one batch.
    fn multiply(&self, parts: Vec<MatrixProduct<'_, Self::Weights>>) -> Result<(), Self::Error>;
}

/// One product for a [`MatrixMultiplier`].
#[derive(Debug)]
pub(crate) struct MatrixProduct<'a, W> {
    /// The weights, N x K.
    pub(crate) weights: &'a W,
    /// M: rows of activations, and of outputs.
    pub(crate) rows: usize,
    /// The activations, M x K.
    pub(crate) activations: &'a ActivationRows<'a>,
    /// Gets the product, M x N.
    pub(crate) out: &'a mut [f32],
}

/// Activations in the form that their weights are multiplied with.
#[derive(Debug)]
pub(crate) enum ActivationRows<'a> {
    /// FP16, for weights of [`MatrixMultiplier::load_f16`].
    Halves(Vec<f16>),
    /// For weights of [`MatrixMultiplier::load_quantised`], which are quantised as
    /// these are.
    Floats(Cow<'a, [f32]>),
}

/// Activations that are ready, and what outputs are to be mended by.
#[derive(Debug)]
pub(super) struct PreparedRows<'a> {
    activations: ActivationRows<'a>,
    mends: Vec<RowCorrection>,
}

/// Rounds rows for FP16, or sees that they can be quantised.
///
/// # Errors
/// There is no memory for them.
pub(super) fn prepare<'a>(
    multiplier: &impl MatrixMultiplier,
    offload: Offload,
    activations: &'a [f32],
) -> Result<PreparedRows<'a>, OutOfMemory> {
    let k = offload.shape.k;
    if offload.precision.quantisation().is_some() {
        let (activations, mends) = without_bad_rows(multiplier, activations, k)?;
        return Ok(PreparedRows {
            activations: ActivationRows::Floats(activations),
            mends,
        });
    }
    let mut rounded = memory::zeroed::<f16>(activations.len())?;
    let mends = activations
        .par_chunks_exact(k)
        .zip(rounded.par_chunks_exact_mut(k))
        .map_init(
            || multiplier.stopwatch(Section::Pack),
            |_, (row, rounded)| quants::round_to_f16(row, rounded),
        )
        .collect();
    Ok(PreparedRows {
        activations: ActivationRows::Halves(rounded),
        mends,
    })
}

impl PreparedRows<'_> {
    /// Its `rows` rows times those weights.
    pub(super) fn part<'a, W>(
        &'a self,
        packed: &'a PackedMatrix<W>,
        rows: usize,
        out: &'a mut [f32],
    ) -> MatrixProduct<'a, W> {
        MatrixProduct {
            weights: &packed.weights,
            rows,
            activations: &self.activations,
            out,
        }
    }

    /// Makes outputs, in rows of `n`, what they are of the rows before they were
    /// prepared.
    pub(super) fn mend<W>(&self, packed: &PackedMatrix<W>, n: usize, out: &mut [f32]) {
        for (mend, outputs) in self.mends.iter().zip(out.chunks_exact_mut(n)) {
            mend.apply(&packed.factors, outputs);
        }
    }
}

/// Replaces rows that hold an infinity or a NaN by zeros.
fn without_bad_rows<'a>(
    multiplier: &impl MatrixMultiplier,
    activations: &'a [f32],
    k: usize,
) -> Result<(Cow<'a, [f32]>, Vec<RowCorrection>), OutOfMemory> {
    let mends: Vec<RowCorrection> = activations
        .par_chunks_exact(k)
        .map_init(
            || multiplier.stopwatch(Section::Pack),
            |_, row| match quants::is_finite(row) {
                true => RowCorrection::Nothing,
                false => RowCorrection::NotANumber,
            },
        )
        .collect();
    if mends.iter().all(|mend| *mend == RowCorrection::Nothing) {
        return Ok((Cow::Borrowed(activations), mends));
    }
    let mut clean = memory::with_room(activations.len())?;
    clean.extend_from_slice(activations);
    for (row, mend) in clean.chunks_exact_mut(k).zip(&mends) {
        if *mend != RowCorrection::Nothing {
            row.fill(0.0);
        }
    }
    Ok((Cow::Owned(clean), mends))
}
