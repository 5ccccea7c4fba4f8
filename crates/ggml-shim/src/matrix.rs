// SPDX-License-Identifier: MIT OR Apache-2.0
//! A weight matrix in ggml's memory, row by row.

use crate::tensor_bytes::TensorBytes;
use crate::types::Decoder;

/// One weight matrix in ggml's memory.
#[derive(Debug)]
pub(crate) struct Matrix<'a> {
    /// Decoder of the tensor's format.
    pub(crate) decoder: Decoder,
    /// Elements of a row.
    pub(crate) k: usize,
    pub(crate) rows: Vec<&'a [u8]>,
    /// All rows, if they are contiguous.
    pub(crate) dense: Option<&'a [u8]>,
}

impl<'a> Matrix<'a> {
    /// Returns matrix `[b2, b3]` of a tensor with matrices of `n x k`; `None` if its bytes are
    /// missing.
    pub(crate) fn new(
        decoder: Decoder,
        rows: &TensorBytes<'a>,
        [n, k]: [usize; 2],
        [b2, b3]: [usize; 2],
    ) -> Option<Self> {
        Some(Self {
            decoder,
            k,
            rows: (0..n)
                .map(|index| rows.row([index, b2, b3]))
                .collect::<Option<_>>()?,
            dense: rows.run(n, [0, b2, b3]),
        })
    }
}
