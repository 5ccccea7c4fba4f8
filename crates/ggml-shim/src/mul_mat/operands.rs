// SPDX-License-Identifier: MIT OR Apache-2.0
//! A product of ggml: its operands, and which rows meet which weights.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use crate::budget::WeightDecision;
use crate::descriptor::TensorDescriptor;
use crate::node_output::NodeOutput;
use crate::pack::PackedMatrix;
use crate::resident::ResidentMatrices;
use crate::supports::{Offload, Shape};
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

impl<'a> MulMat<'a> {
    /// The activations of a row of the output, counted through all of its matrices.
    pub(super) fn activation_row(&self, row: usize) -> Option<&'a [f32]> {
        let index = match self.offload.experts {
            None => self.activation_index(row),
            Some(experts) => [row % experts.used % experts.given, row / experts.used, 0],
        };
        <[f32]>::ref_from_bytes(self.activations.row(index)?).ok()
    }

    /// The activations of such rows of one weight matrix, if they lie next to each other.
    pub(super) fn activation_run(&self, rows: &Range<usize>) -> Option<&'a [f32]> {
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
