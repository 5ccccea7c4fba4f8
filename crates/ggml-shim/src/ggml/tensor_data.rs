// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a tensor or of one weight matrix, row by row, and the outputs of a node.

use crate::ggml::tensor_shape::TensorShape;
use crate::ggml::types::HostFormat;

/// A tensor and its bytes, from its first element to the end of its last one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorData<'a> {
    pub(crate) tensor: TensorShape,
    /// Empty if the CPU cannot read them in place.
    pub(crate) bytes: &'a [u8],
}

impl<'a> TensorData<'a> {
    /// Row `index[0]` of matrix `index[1..]`.
    pub(crate) fn row(&self, index: [usize; 3]) -> Option<&'a [u8]> {
        self.run(1, index)
    }

    /// `count` rows of one matrix, if they are contiguous.
    pub(crate) fn run(&self, count: usize, index: [usize; 3]) -> Option<&'a [u8]> {
        let row_bytes = self.tensor.row_bytes()?;
        if self.tensor.nb[1] != row_bytes && count > 1 {
            return None;
        }
        let start = self.tensor.offset(index)?;
        let len = row_bytes.checked_mul(count)?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

/// One weight matrix in ggml's memory.
#[derive(Debug)]
pub(crate) struct TensorMatrix<'a> {
    pub(crate) format: HostFormat,
    /// Elements of a row.
    pub(crate) k: usize,
    pub(crate) rows: Vec<&'a [u8]>,
    /// All rows, if they are contiguous.
    pub(crate) dense: Option<&'a [u8]>,
}

impl<'a> TensorMatrix<'a> {
    /// Returns matrix `[b2, b3]` of `weights`; `None` if its bytes are missing.
    pub(crate) fn new(weights: &TensorData<'a>, [b2, b3]: [usize; 2]) -> Option<Self> {
        let [k, n, ..] = weights.tensor.dimensions().ok()?;
        let rows = (0..n).map(|index| weights.row([index, b2, b3]));
        Some(Self {
            format: weights.tensor.format,
            k,
            rows: rows.collect::<Option<_>>()?,
            dense: weights.run(n, [0, b2, b3]),
        })
    }
}

/// Where the outputs of a node are written.
#[derive(Debug)]
pub(crate) enum NodeOutput<'a> {
    /// To the data of the node.
    InPlace(&'a mut [f32]),
    /// To separate memory, because others still need what the data of the node holds.
    Aside(Vec<f32>),
}

impl NodeOutput<'_> {
    pub(crate) fn values(&self) -> &[f32] {
        match self {
            Self::InPlace(values) => values,
            Self::Aside(values) => values,
        }
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        match self {
            Self::InPlace(values) => values,
            Self::Aside(values) => values,
        }
    }

    /// The outputs, if they are set aside.
    pub(crate) fn aside(self) -> Option<Vec<f32>> {
        match self {
            Self::InPlace(_) => None,
            Self::Aside(values) => Some(values),
        }
    }
}
