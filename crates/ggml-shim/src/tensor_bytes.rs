// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a tensor, row by row.

use crate::abi::MAX_DIMS;

/// The bytes of a tensor, from its first element to the end of its last one, and their strides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorBytes<'a> {
    /// All bytes of the tensor.
    pub(crate) bytes: &'a [u8],
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

    /// `count` rows of one matrix, if they are contiguous.
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
