// SPDX-License-Identifier: MIT OR Apache-2.0
//! The activation rows that a part of a matmul reads.
//!
//! Parts with equal [`ActivationRows`] share their rows. So these hold all that prepared rows depend
//! on, and rows are prepared from nothing else.

use std::borrow::Cow;
use std::ops::Range;
use std::ptr;

use npu_matmul::Engine;
use zerocopy::FromBytes;

use super::rows::{CallRows, RowScratch};
use crate::decide::offload::{ExpertChoice, MatmulOffload, MatmulSize};
use crate::ggml::tensor_data::TensorData;
use crate::weights::node_error::NodeFailure;

/// Rows of a matmul's output, counted through all of its matrices. Each is the result of one
/// activation row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowSet {
    /// Rows next to each other, like perhaps their activations.
    Run(Range<usize>),
    Scattered(Vec<usize>),
}

impl RowSet {
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

/// Activation rows, and how they are prepared: everything that the prepared rows depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActivationRows<'a> {
    activations: UnchangedTensor<'a>,
    order: RowOrder,
    pub(super) rows: RowSet,
    /// Elements of a row.
    k: usize,
    /// Whether they are rounded to FP16.
    is_rounded: bool,
}

/// A tensor that nobody writes while parts hold it, so that its place identifies its data.
#[derive(Debug, Clone, Copy)]
struct UnchangedTensor<'a>(TensorData<'a>);

impl PartialEq for UnchangedTensor<'_> {
    fn eq(&self, other: &Self) -> bool {
        let TensorData { tensor, bytes } = self.0;
        tensor == other.0.tensor && ptr::eq(bytes, other.0.bytes)
    }
}

impl Eq for UnchangedTensor<'_> {}

/// Which activation row belongs to a row of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowOrder {
    /// The row at the same place. The activations have `m` rows in each matrix and `matrices`
    /// matrices in dimension 2.
    Same { m: usize, matrices: usize },
    /// A row of the output for each expert that a token chose.
    ByExpert(ExpertChoice),
}

impl<'a> ActivationRows<'a> {
    /// Takes the activations of a matmul whose results are these rows of its output.
    pub(super) fn of(activations: TensorData<'a>, offload: &MatmulOffload, rows: RowSet) -> Self {
        let MatmulSize {
            m,
            k,
            matrices,
            repeats,
            ..
        } = offload.shape;
        Self {
            activations: UnchangedTensor(activations),
            order: match offload.experts {
                Some(experts) => RowOrder::ByExpert(experts),
                None => RowOrder::Same {
                    m,
                    matrices: matrices[0] * repeats[0],
                },
            },
            rows,
            k,
            is_rounded: offload.precision.quantisation().is_none(),
        }
    }

    /// Elements of all rows.
    pub(super) fn elements(&self) -> usize {
        self.rows.len().saturating_mul(self.k)
    }

    /// Prepares the rows.
    pub(super) fn prepare(
        &self,
        engine: &Engine,
        scratch: &RowScratch,
    ) -> Result<CallRows<'a>, NodeFailure> {
        let rows = match self.run() {
            Some(rows) => Cow::Borrowed(rows),
            None => {
                let mut gathered = scratch.floats.take(self.elements())?;
                for (row, to) in self.rows.iter().zip(gathered.chunks_exact_mut(self.k)) {
                    to.copy_from_slice(self.row(row)?);
                }
                Cow::Owned(gathered)
            }
        };
        CallRows::new(engine, scratch, self.is_rounded, self.k, rows)
    }

    /// The activations of one row of the output.
    pub(super) fn row(&self, row: usize) -> Result<&'a [f32], NodeFailure> {
        let bytes = self.activations.0.row(self.index(row));
        let row = bytes.and_then(|bytes| <[f32]>::ref_from_bytes(bytes).ok());
        row.ok_or(NodeFailure::Data("activations"))
    }

    /// The activations of all rows, if they are contiguous.
    fn run(&self) -> Option<&'a [f32]> {
        let (RowSet::Run(rows), RowOrder::Same { m, .. }) = (&self.rows, self.order) else {
            return None;
        };
        let UnchangedTensor(activations) = self.activations;
        let tensor = &activations.tensor;
        let is_dense = rows.len() == m || tensor.nb[2] == m * tensor.row_bytes()?;
        if !is_dense {
            return None;
        }
        let bytes = activations.run(rows.len(), self.index(rows.start))?;
        <[f32]>::ref_from_bytes(bytes).ok()
    }

    /// Row and matrix of the activations of a row of the output.
    fn index(&self, row: usize) -> [usize; 3] {
        match self.order {
            RowOrder::Same { m, matrices } => {
                let matrix = row / m;
                [row % m, matrix % matrices, matrix / matrices]
            }
            RowOrder::ByExpert(ExpertChoice { used, given }) => [row % used % given, row / used, 0],
        }
    }
}
