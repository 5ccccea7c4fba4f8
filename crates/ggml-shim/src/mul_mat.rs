// SPDX-License-Identifier: MIT OR Apache-2.0
//! ggml's products to the engine's calls, all of a list at once.
//!
//! ```text
//! for each product of the list
//!     for each of its weight matrices that meets activation rows       -> a part
//!         pack the matrix, unless it is resident
//!         make the rows contiguous        (nothing to do in the usual case)
//!         FP16: round the rows            (once for all parts of the same rows)
//! multiply all parts                      (the engine quantises rows for INT8, once)
//! mend the outputs, and put rows that chose their weights where they belong
//! ```
//!
//! Products of a list do not depend on each other: none writes what another reads or writes.
//! Tiling, packing and quantising are the engine's.

mod batch;
mod by_expert;
mod rows;

use std::ops::Range;
use std::sync::Arc;

use npu_matmul::Engine;
use zerocopy::FromBytes;

use self::batch::{Batch, BatchLimits, Part, PartRows};
pub(crate) use self::rows::RowScratch;
use crate::budget::WeightDecision;
use crate::mul_mat_error::ListError;
use crate::node_output::NodeOutput;
use crate::pack::PackedMatrix;
use crate::resident::ResidentMatrices;
use crate::supports::{Offload, Shape, TensorDescriptor};
use crate::tensor_bytes::TensorBytes;
use crate::types::Decoder;
use crate::verify::OutputErrors;

/// A weight tensor and its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredWeights {
    /// Format, dimensions and strides.
    pub(crate) operand: TensorDescriptor,
    /// Address of its first byte.
    pub(crate) address: usize,
}

/// Where packed weights stay for later products.
#[derive(Debug, Clone)]
pub(crate) struct KeptWeights {
    /// The table of their buffer.
    pub(crate) residents: Arc<ResidentMatrices<PackedMatrix>>,
    /// What was decided about them, to count those that become resident.
    pub(crate) decision: Option<Arc<WeightDecision>>,
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
    /// That table; without it weights are packed for this product only.
    pub(crate) kept: Option<KeptWeights>,
    /// src1.
    pub(crate) activations: TensorBytes<'a>,
    /// src2: which experts each token chose.
    pub(crate) ids: Option<TensorBytes<'a>>,
    /// dst: `outputs()` numbers.
    pub(crate) out: NodeOutput<'a>,
    /// How far its outputs are from the CPU's, if it is computed again.
    pub(crate) errors: Option<OutputErrors>,
}

/// Computes products that do not depend on each other.
///
/// # Errors
/// See [`MulMatError`]; all outputs are then worthless.
pub(crate) fn compute(
    engine: &Engine,
    scratch: &RowScratch,
    products: &mut [MulMat<'_>],
) -> Result<(), ListError> {
    compute_within(engine, scratch, products, batch::MOST)
}

/// The same with at most so much at a time.
fn compute_within(
    engine: &Engine,
    scratch: &RowScratch,
    products: &mut [MulMat<'_>],
    most: BatchLimits,
) -> Result<(), ListError> {
    let mut batch = Batch::new(engine, scratch, most);
    for index in 0..products.len() {
        let product = &products[index];
        let parts = match product.offload.experts {
            Some(experts) => by_expert::parts(product, index, experts),
            None => Ok(parts(product, index)),
        };
        for part in parts.map_err(ListError::of(index))? {
            batch.push(products, part)?;
        }
    }
    batch.flush(products)
}

/// Each weight matrix with the activation matrices that meet it, in the order of the outputs.
fn parts(product: &MulMat<'_>, index: usize) -> Vec<Part> {
    let Shape {
        m,
        matrices,
        repeats,
        ..
    } = product.offload.shape;
    // Matrices next to each other in dimension 2 that meet the same weights
    // are one run of rows, and so are their outputs.
    let rows = repeats[0] * m;
    let runs = matrices[0] * matrices[1] * repeats[1];
    let part = |run: usize| Part {
        product: index,
        matrix: [run % matrices[0], run / matrices[0] / repeats[1]],
        rows: PartRows::Run(run * rows..(run + 1) * rows),
    };
    (0..runs).map(part).collect()
}

impl<'a> MulMat<'a> {
    /// The activations of a row of the output, counted through all of its matrices.
    fn activation_row(&self, row: usize) -> Option<&'a [f32]> {
        let index = match self.offload.experts {
            None => self.activation_index(row),
            Some(experts) => [row % experts.used % experts.given, row / experts.used, 0],
        };
        <[f32]>::ref_from_bytes(self.activations.row(index)?).ok()
    }

    /// The activations of such rows of one weight matrix, if they lie next to each other.
    fn activation_run(&self, rows: &Range<usize>) -> Option<&'a [f32]> {
        let m = self.offload.shape.m;
        let is_dense = rows.len() == m || self.activations.nb[2] == m * self.activations.row_bytes;
        if !is_dense {
            return None;
        }
        let first = self.activation_index(rows.start);
        let bytes = self.activations.run(rows.len(), first)?;
        <[f32]>::ref_from_bytes(bytes).ok()
    }

    /// Row and matrix of the activations.
    fn activation_index(&self, row: usize) -> [usize; 3] {
        let Shape {
            m,
            matrices,
            repeats,
            ..
        } = self.offload.shape;
        let matrix = row / m;
        let of_dimension_2 = matrices[0] * repeats[0];
        [row % m, matrix % of_dimension_2, matrix / of_dimension_2]
    }
}

#[cfg(test)]
pub(crate) mod tests;
