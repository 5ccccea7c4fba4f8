// SPDX-License-Identifier: MIT OR Apache-2.0
//! A matmul of ggml: its operands, and the rows that each weight matrix multiplies.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use crate::resident::ResidentWeights;
use crate::supports::Offload;
use crate::tensor_bytes::{NodeOutput, TensorBytes};
use crate::verify::OutputErrors;

/// A matmul and its data.
#[derive(Debug)]
pub(crate) struct MulMat<'a> {
    pub(crate) offload: Offload,
    /// Without bytes if only its packed form exists.
    pub(crate) weights: TensorBytes<'a>,
    /// Where their packed matrices stay; without it they are packed for this matmul only.
    pub(crate) kept: Option<Arc<ResidentWeights>>,
    pub(crate) activations: TensorBytes<'a>,
    /// Which experts each token chose.
    pub(crate) ids: Option<TensorBytes<'a>>,
    /// dst: `outputs()` numbers.
    pub(crate) out: NodeOutput<'a>,
    /// Errors of its outputs against the CPU's, if it is verified.
    pub(crate) errors: Option<OutputErrors>,
}

/// One activation matrix times one weight matrix.
#[derive(Debug)]
pub(super) struct Part {
    /// Index of the matmul that it is a part of.
    pub(super) matmul: usize,
    /// Which of its weight matrices.
    pub(super) matrix: [usize; 2],
    pub(super) rows: PartRows,
}

/// Rows of a matmul's output, counted through all of its matrices. Each is the result of one
/// activation row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartRows {
    /// Rows next to each other, like perhaps their activations.
    Run(Range<usize>),
    Scattered(Vec<usize>),
}

impl PartRows {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Run(rows) => rows.len(),
            Self::Scattered(rows) => rows.len(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        let (run, scattered) = match self {
            Self::Run(rows) => (rows.clone(), &[][..]),
            Self::Scattered(rows) => (0..0, &rows[..]),
        };
        run.chain(scattered.iter().copied())
    }
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

    /// The activations of rows of one weight matrix, if they are contiguous.
    pub(super) fn activation_run(&self, rows: &Range<usize>) -> Option<&'a [f32]> {
        let m = self.offload.shape.m;
        let tensor = &self.activations.tensor;
        let is_dense = rows.len() == m || tensor.nb[2] == m * tensor.row_bytes()?;
        if !is_dense {
            return None;
        }
        let first = self.activation_index(rows.start);
        let bytes = self.activations.run(rows.len(), first)?;
        <[f32]>::ref_from_bytes(bytes).ok()
    }

    /// Row and matrix of the activations.
    fn activation_index(&self, row: usize) -> [usize; 3] {
        let shape = &self.offload.shape;
        let matrix = row / shape.m;
        let of_dimension_2 = shape.matrices[0] * shape.repeats[0];
        [
            row % shape.m,
            matrix % of_dimension_2,
            matrix / of_dimension_2,
        ]
    }
}
