// SPDX-License-Identifier: MIT OR Apache-2.0
//! Type, dimensions and strides of a tensor, and the properties that follow from them.

use std::ops::Range;

use crate::ggml::abi::{MAX_DIMS, type_id};
use crate::ggml::reason::DeclineReason;
use crate::ggml::types::HostFormat;

/// Type, dimensions and strides of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TensorShape {
    /// Format of its numbers.
    pub(crate) format: HostFormat,
    /// Elements per dimension, fastest first.
    pub(crate) ne: [i64; MAX_DIMS],
    /// Bytes from one element to the next, per dimension.
    pub(crate) nb: [usize; MAX_DIMS],
}

/// Checks that the number of elements of each operand does not overflow, in bytes of the widest
/// element.
pub(crate) fn check_sizes(sizes: [[usize; MAX_DIMS]; 3]) -> Result<(), DeclineReason> {
    for size in sizes {
        let product = |bytes: usize, size: &usize| bytes.checked_mul(*size);
        let bytes = size.iter().try_fold(size_of::<f32>(), product);
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(DeclineReason::Dimensions);
        }
    }
    Ok(())
}

impl TensorShape {
    /// Returns the dimensions, or an error if one is below 1.
    pub(crate) fn dimensions(&self) -> Result<[usize; MAX_DIMS], DeclineReason> {
        let dimensions = self.ne.map(|size| usize::try_from(size).unwrap_or(0));
        if dimensions.contains(&0) {
            return Err(DeclineReason::Dimensions);
        }
        Ok(dimensions)
    }

    /// Bytes of a row; `None` if it is not a whole number of blocks.
    pub(crate) fn row_bytes(&self) -> Option<usize> {
        let elements = usize::try_from(self.ne[0]).ok()?;
        self.format.number.row_bytes(elements)
    }

    /// Bytes from the first element to row `index[0]` of matrix `index[1..]`.
    pub(crate) fn offset(&self, index: [usize; 3]) -> Option<usize> {
        let mut offset = 0_usize;
        for (index, stride) in index.iter().zip(&self.nb[1..]) {
            offset = offset.checked_add(index.checked_mul(*stride)?)?;
        }
        Some(offset)
    }

    /// Addresses from the first element, at `address`, to the end of the last one; `None` if a size
    /// is invalid.
    pub(crate) fn extent(&self, address: usize) -> Option<Range<usize>> {
        let [_, rows, b2, b3] = self.ne.map(|size| usize::try_from(size).unwrap_or(0));
        let last = [rows.checked_sub(1)?, b2.checked_sub(1)?, b3.checked_sub(1)?];
        let len = self.offset(last)?.checked_add(self.row_bytes()?)?;
        isize::try_from(len).ok()?;
        Some(address..address.checked_add(len)?)
    }

    /// Whether each row of `elements` is an aligned run of whole blocks.
    pub(crate) fn has_rows(&self, elements: usize) -> bool {
        let block = self.format.number.block_bytes;
        self.format.number.row_bytes(elements).is_some()
            && self.nb[0] == block
            && self.nb.iter().all(|stride| stride.is_multiple_of(block))
    }

    /// Whether the tensor is F32 without gaps, in the order of its dimensions.
    pub(crate) fn is_packed(&self) -> bool {
        let mut expected = size_of::<f32>();
        for (size, stride) in self.ne.iter().zip(self.nb) {
            if stride != expected {
                return false;
            }
            let size = usize::try_from(*size).unwrap_or(usize::MAX);
            expected = expected.saturating_mul(size);
        }
        self.format.number.id == type_id::F32
    }
}
