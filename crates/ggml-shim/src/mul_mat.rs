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
//! Tiling, packing and quantising are the engine's. The products of experts are
//! given to it all at once.

mod by_expert;
mod part;

use std::borrow::Cow;
use std::sync::Arc;

use zerocopy::FromBytes;

pub(crate) use self::part::{ActivationRows, MatrixMultiplier, MatrixProduct};
use crate::abi::MAX_DIMS;
use crate::budget::WeightDecision;
use crate::memory::{self, OutOfMemory};
use crate::pack::{self, Matrix, PackedMatrix};
use crate::quants::NotFinite;
use crate::resident::ResidentMatrices;
use crate::supports::{Offload, Shape, TensorDescriptor};
use crate::types::Decoder;
use crate::verify::OutputErrors;

/// Why a product has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MulMatError<E: std::error::Error + Send + Sync + 'static> {
    /// The device or the engine.
    #[error("{0}")]
    Engine(E),
    /// No memory for what is between the host's operands and the engine's.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// Weights that are no numbers.
    #[error(transparent)]
    Weights(#[from] NotFinite),
    /// Weights that the CPU has rearranged and that were not packed before.
    #[error("its weights were not packed when they were loaded")]
    NotPacked,
    /// A row that chose weights that do not exist.
    #[error("a row asks for expert {number} of {count}")]
    NoSuchExpert {
        /// The number of the expert that the row asks for.
        number: i32,
        /// Number of experts that there are.
        count: usize,
    },
    /// A tensor whose data is not where its strides say.
    #[error("the {0} are shorter than their strides say, or not aligned to their type")]
    Data(&'static str),
}

/// The bytes of a tensor, from its first element to behind its last one, and
/// the strides to walk them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorBytes<'a> {
    /// All bytes of the matrix.
    pub(crate) bytes: &'a [u8],
    /// Bytes of one row.
    pub(crate) row_bytes: usize,
    /// ggml's strides in bytes.
    pub(crate) nb: [usize; MAX_DIMS],
}

impl<'a> TensorBytes<'a> {
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
pub(crate) struct StoredWeights {
    /// Format, dimensions and strides.
    pub(crate) operand: TensorDescriptor,
    /// Address of its first byte.
    pub(crate) address: usize,
}

/// A product and its data.
#[derive(Debug)]
pub(crate) struct MulMat<'a> {
    /// Precision and size of the product.
    pub(crate) offload: Offload,
    /// Decodes the weights.
    pub(crate) decoder: Decoder,
    /// src0; without bytes, if they are there in packed form only.
    pub(crate) weights: TensorBytes<'a>,
    /// Where and what src0 is, for the table of packed weights.
    pub(crate) stored: StoredWeights,
    /// src1.
    pub(crate) activations: TensorBytes<'a>,
    /// src2: which experts each token chose.
    pub(crate) ids: Option<TensorBytes<'a>>,
    /// dst: `outputs()` numbers.
    pub(crate) out: &'a mut [f32],
    /// How far its outputs are from the CPU's, if it is computed again.
    pub(crate) errors: Option<OutputErrors>,
    /// What was decided about the weights, to count those that become resident.
    pub(crate) decision: Option<Arc<WeightDecision>>,
}

/// Computes `product`. Weights are kept in `residents`, if there are any.
///
/// # Errors
/// See [`MulMatError`]; the output is then worthless.
pub(crate) fn compute<M: MatrixMultiplier>(
    multiplier: &M,
    residents: Option<&ResidentMatrices<PackedMatrix<M::Weights>>>,
    product: &mut MulMat<'_>,
) -> Result<(), MulMatError<M::Error>> {
    let Shape {
        m,
        n,
        k,
        matrices,
        repeats,
    } = product.offload.shape;
    if let Some(experts) = product.offload.experts {
        return by_expert::compute(multiplier, residents, product, experts, by_expert::MOST);
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
                let prepared = part::prepare(multiplier, product.offload, &activations)?;
                let part = prepared.part(&weights, rows, out);
                multiplier
                    .multiply(vec![part])
                    .map_err(MulMatError::Engine)?;
                prepared.mend(&weights, n, out);
                if let Some(errors) = &mut product.errors {
                    let now = Matrix::new(product.decoder, &product.weights, [n, k], [b2, b3]);
                    verify(errors, now.as_ref(), &weights, &activations, out);
                }
            }
        }
    }
    Ok(())
}

/// The packed weight matrix `b2`, `b3`.
fn weights<M: MatrixMultiplier>(
    multiplier: &M,
    residents: Option<&ResidentMatrices<PackedMatrix<M::Weights>>>,
    product: &MulMat<'_>,
    b2: usize,
    b3: usize,
) -> Result<Arc<PackedMatrix<M::Weights>>, MulMatError<M::Error>> {
    let Shape { n, k, .. } = product.offload.shape;
    let load = || {
        if product.weights.bytes.is_empty() {
            return Err(MulMatError::NotPacked);
        }
        let matrix = Matrix::new(product.decoder, &product.weights, [n, k], [b2, b3])
            .ok_or(MulMatError::Data("weights"))?;
        // They can be read again where they lie.
        pack::load_matrix(multiplier, product.offload.precision, &matrix, false)
    };
    let StoredWeights { operand, address } = product.stored;
    match (residents, operand.key(address, [b2, b3])) {
        (Some(residents), Some(key)) => residents.get_or_load(key, || {
            let mut packed = load()?;
            packed.counted = product.decision.as_ref().map(WeightDecision::count_packed);
            Ok(packed)
        }),
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
    let mut floats = memory::with_room(repeats[0] * m * k)?;
    for i2 in first..first + repeats[0] {
        for index in 0..m {
            let row = rows.row([index, i2, i3]).ok_or_else(misplaced)?;
            floats.extend_from_slice(<[f32]>::ref_from_bytes(row).map_err(|_| misplaced())?);
        }
    }
    Ok(Cow::Owned(floats))
}

/// Holds outputs against what the CPU makes of the weights: as they are `now`, or where they cannot
/// be read in place, as they were in the model file.
fn verify<W>(
    errors: &mut OutputErrors,
    now: Option<&Matrix<'_>>,
    packed: &PackedMatrix<W>,
    activations: &[f32],
    out: &[f32],
) {
    match (now, &packed.original) {
        (Some(now), _) => {
            let decode = |row: usize, out: &mut [f32]| now.decoder.decode(now.rows[row], out);
            errors.add(decode, now.k, activations, out);
        }
        (None, Some(original)) => {
            let decode = |row: usize, out: &mut [f32]| original.row(row, out);
            errors.add(decode, original.k(), activations, out);
        }
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests;
