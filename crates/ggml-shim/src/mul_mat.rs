// SPDX-License-Identifier: MIT OR Apache-2.0
//! One `MUL_MAT`: ggml's operands to the engine's products.
//!
//! ```text
//! for each weight matrix
//!     pack it, unless it is resident
//!     for each run of activation rows that meets it
//!         make the rows contiguous        (nothing to do in the usual case)
//!         FP16: round the rows            -> multiply -> mend the outputs
//!         INT8: the engine quantises them -> multiply
//! ```
//!
//! Tiling, packing and quantising are the engine's.

mod by_expert;

use std::borrow::Cow;
use std::sync::Arc;

use half::f16;
use npu_matmul::{Section, Stopwatch};
use rayon::prelude::*;
use zerocopy::FromBytes;

use crate::abi::MAX_DIMS;
use crate::pack::{self, Matrix, Packed};
use crate::precision::Precision;
use crate::quants::{self, Mend, NotFinite};
use crate::resident::Residents;
use crate::supports::{Offload, Operand, Shape};
use crate::types::Decoder;
use crate::verify::Checking;

/// What multiplies: the engine, or in tests something simpler.
pub(crate) trait Multiplier: Sync {
    /// A packed weight matrix.
    type Weights;
    /// What can go wrong.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Measures what is done for a product outside of it; `None` if nobody
    /// wants to know.
    fn stopwatch(&self, _section: Section) -> Option<Stopwatch<'_>> {
        None
    }

    /// Packs `n` rows of `k` FP16 weights.
    fn load_f16(&self, n: usize, k: usize, weights: &[f16]) -> Result<Self::Weights, Self::Error>;

    /// Quantises `n` rows of `k` weights for a quantised `precision`;
    /// `fill(index, row)` writes a row, maybe in several threads.
    fn load_quantised(
        &self,
        n: usize,
        k: usize,
        precision: Precision,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Self::Weights, Self::Error>;

    /// `m` rows of FP16 activations times weights of [`Self::load_f16`].
    fn multiply_f16(
        &self,
        weights: &Self::Weights,
        m: usize,
        activations: &[f16],
        out: &mut [f32],
    ) -> Result<(), Self::Error>;

    /// `m` rows of activations, quantised as the weights are, times weights of
    /// [`Self::load_quantised`].
    fn multiply_quantised(
        &self,
        weights: &Self::Weights,
        m: usize,
        activations: &[f32],
        out: &mut [f32],
    ) -> Result<(), Self::Error>;
}

/// Why a product has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MulMatError<E: std::error::Error + Send + Sync + 'static> {
    /// The device or the engine.
    #[error("{0}")]
    Engine(E),
    /// Weights that are no numbers.
    #[error(transparent)]
    Weights(#[from] NotFinite),
    /// Weights that the CPU has rearranged and that were not packed before.
    #[error("its weights were not packed when they were loaded")]
    NotPacked,
    /// A row that chose weights that do not exist.
    #[error("a row asks for expert {number} of {count}")]
    NoSuchExpert {
        /// What it asks for.
        number: i32,
        /// How many there are.
        count: usize,
    },
    /// A tensor whose data is not where its strides say.
    #[error("the {0} are shorter than their strides say, or not aligned to their type")]
    Data(&'static str),
}

/// The bytes of a tensor, from its first element to behind its last one, and
/// the strides to walk them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// All bytes.
    pub(crate) bytes: &'a [u8],
    /// Bytes of one row.
    pub(crate) row_bytes: usize,
    /// ggml's strides in bytes.
    pub(crate) nb: [usize; MAX_DIMS],
}

impl<'a> Rows<'a> {
    /// Row `index[0]` of matrix `index[1..]`.
    pub(crate) fn row(&self, index: [usize; 3]) -> Option<&'a [u8]> {
        let start = self.offset(index)?;
        self.bytes.get(start..start.checked_add(self.row_bytes)?)
    }

    /// `count` rows of one matrix, if nothing lies between them.
    pub(crate) fn run(&self, count: usize, index: [usize; 3]) -> Option<&'a [u8]> {
        if self.nb[1] != self.row_bytes && count > 1 {
            return None;
        }
        let start = self.offset(index)?;
        let len = self.row_bytes.checked_mul(count)?;
        self.bytes.get(start..start.checked_add(len)?)
    }

    fn offset(&self, index: [usize; 3]) -> Option<usize> {
        let mut offset = 0_usize;
        for (index, stride) in index.iter().zip(&self.nb[1..]) {
            offset = offset.checked_add(index.checked_mul(*stride)?)?;
        }
        Some(offset)
    }
}

/// A weight tensor and its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    /// Format, dimensions and strides.
    pub(crate) operand: Operand,
    /// Where its data begin.
    pub(crate) address: usize,
}

/// A product and its data.
#[derive(Debug)]
pub(crate) struct MulMat<'a> {
    /// How, and how large.
    pub(crate) offload: Offload,
    /// Decodes the weights.
    pub(crate) decoder: Decoder,
    /// src0; without bytes, if they are there in packed form only.
    pub(crate) weights: Rows<'a>,
    /// Where and what src0 is, for the table of packed weights.
    pub(crate) stored: Stored,
    /// src1.
    pub(crate) activations: Rows<'a>,
    /// src2: which experts each token chose.
    pub(crate) ids: Option<Rows<'a>>,
    /// dst: `outputs()` numbers.
    pub(crate) out: &'a mut [f32],
    /// Whether it is computed again.
    pub(crate) checking: Checking,
}

/// Computes `product`. Weights are kept in `residents`, if there are any.
///
/// # Errors
/// See [`MulMatError`]; the output is then worthless.
pub(crate) fn compute<M: Multiplier>(
    multiplier: &M,
    residents: Option<&Residents<Packed<M::Weights>>>,
    product: &mut MulMat<'_>,
) -> Result<(), MulMatError<M::Error>> {
    let Shape {
        m,
        n,
        matrices,
        repeats,
        ..
    } = product.offload.shape;
    if let Some(experts) = product.offload.experts {
        return by_expert::compute(multiplier, residents, product, experts);
    }
    let a2 = matrices[0] * repeats[0];
    // Matrices next to each other in dimension 2 that meet the same weights
    // are one run of rows, and so are their outputs.
    let rows = repeats[0] * m;
    for b3 in 0..matrices[1] {
        for b2 in 0..matrices[0] {
            let weights = weights(multiplier, residents, product, b2, b3)?;
            for i3 in b3 * repeats[1]..(b3 + 1) * repeats[1] {
                let activations = activations(product, b2 * repeats[0], i3)?;
                let first = (i3 * a2 + b2 * repeats[0]) * m * n;
                let out = product
                    .out
                    .get_mut(first..first + rows * n)
                    .ok_or(MulMatError::Data("outputs"))?;
                multiply(
                    multiplier,
                    product.offload,
                    &weights,
                    rows,
                    &activations,
                    out,
                )?;
                verify(
                    &mut product.checking,
                    &weights,
                    product.offload.shape.k,
                    &activations,
                    out,
                );
            }
        }
    }
    Ok(())
}

/// The packed weight matrix `b2`, `b3`.
fn weights<M: Multiplier>(
    multiplier: &M,
    residents: Option<&Residents<Packed<M::Weights>>>,
    product: &MulMat<'_>,
    b2: usize,
    b3: usize,
) -> Result<Arc<Packed<M::Weights>>, MulMatError<M::Error>> {
    let Shape { n, k, .. } = product.offload.shape;
    let load = || {
        if product.weights.bytes.is_empty() {
            return Err(MulMatError::NotPacked);
        }
        let matrix = Matrix::new(product.decoder, &product.weights, [n, k], [b2, b3])
            .ok_or(MulMatError::Data("weights"))?;
        pack::load(
            multiplier,
            product.offload.precision,
            &matrix,
            product.checking.keep,
        )
    };
    let Stored { operand, address } = product.stored;
    match (residents, operand.key(address, [b2, b3])) {
        (Some(residents), Some(key)) => residents.get_or_load(key, load),
        _ => load().map(Arc::new),
    }
}

/// The activation rows of `repeats[0]` matrices from `first` on.
fn activations<'a, E: std::error::Error + Send + Sync + 'static>(
    product: &MulMat<'a>,
    first: usize,
    i3: usize,
) -> Result<Cow<'a, [f32]>, MulMatError<E>> {
    let Shape { m, k, repeats, .. } = product.offload.shape;
    let rows = product.activations;
    let misplaced = || MulMatError::Data("activations");
    let dense = repeats[0] == 1 || rows.nb[2] == m * rows.row_bytes;
    let run = if dense {
        rows.run(repeats[0] * m, [0, first, i3])
    } else {
        None
    };
    if let Some(bytes) = run {
        let floats = <[f32]>::ref_from_bytes(bytes).map_err(|_| misplaced())?;
        return Ok(Cow::Borrowed(floats));
    }
    let mut floats = Vec::with_capacity(repeats[0] * m * k);
    for i2 in first..first + repeats[0] {
        for index in 0..m {
            let row = rows.row([index, i2, i3]).ok_or_else(misplaced)?;
            floats.extend_from_slice(<[f32]>::ref_from_bytes(row).map_err(|_| misplaced())?);
        }
    }
    Ok(Cow::Owned(floats))
}

/// `rows` activation rows times one weight matrix.
fn multiply<M: Multiplier>(
    multiplier: &M,
    offload: Offload,
    packed: &Packed<M::Weights>,
    rows: usize,
    activations: &[f32],
    out: &mut [f32],
) -> Result<(), MulMatError<M::Error>> {
    let Shape { n, k, .. } = offload.shape;
    let mends: Vec<Mend> = match offload.precision {
        Precision::Fp16 => {
            let mut rounded = vec![f16::ZERO; activations.len()];
            let mends = activations
                .par_chunks_exact(k)
                .zip(rounded.par_chunks_exact_mut(k))
                .map_init(
                    || multiplier.stopwatch(Section::Pack),
                    |_, (row, rounded)| quants::round_to_f16(row, rounded),
                )
                .collect();
            multiplier
                .multiply_f16(&packed.weights, rows, &rounded, out)
                .map_err(MulMatError::Engine)?;
            mends
        }
        _ => {
            let (activations, mends) = without_bad_rows(multiplier, activations, k);
            multiplier
                .multiply_quantised(&packed.weights, rows, &activations, out)
                .map_err(MulMatError::Engine)?;
            mends
        }
    };
    for (mend, outputs) in mends.iter().zip(out.chunks_exact_mut(n)) {
        mend.apply(packed.factors.as_deref(), outputs);
    }
    Ok(())
}

/// Holds outputs against what the CPU makes of the weights' originals.
fn verify<W>(
    checking: &mut Checking,
    packed: &Packed<W>,
    k: usize,
    activations: &[f32],
    out: &[f32],
) {
    if let (Some(errors), Some(original)) = (&mut checking.errors, &packed.original) {
        errors.add(original, k, activations, out);
    }
}

/// Replaces rows that hold an infinity or a NaN by zeros.
fn without_bad_rows<'a>(
    multiplier: &impl Multiplier,
    activations: &'a [f32],
    k: usize,
) -> (Cow<'a, [f32]>, Vec<Mend>) {
    let mends: Vec<Mend> = activations
        .par_chunks_exact(k)
        .map_init(
            || multiplier.stopwatch(Section::Pack),
            |_, row| match quants::is_finite(row) {
                true => Mend::Nothing,
                false => Mend::NotANumber,
            },
        )
        .collect();
    if mends.iter().all(|mend| *mend == Mend::Nothing) {
        return (Cow::Borrowed(activations), mends);
    }
    let mut clean = activations.to_vec();
    for (row, mend) in clean.chunks_exact_mut(k).zip(&mends) {
        if *mend != Mend::Nothing {
            row.fill(0.0);
        }
    }
    (Cow::Owned(clean), mends)
}

#[cfg(test)]
mod tests;
