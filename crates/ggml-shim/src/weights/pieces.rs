// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins tensors that arrive in pieces.

use std::collections::HashMap;

use rangemap::RangeSet;

use crate::ggml::ranges::covers;
use crate::ggml::tensor_shape::TensorShape;
use crate::weights::memory;
use crate::weights::node_error::NodeFailure;

/// Incomplete tensors by address.
#[derive(Debug, Default)]
pub(crate) struct TensorPieces(HashMap<usize, Partial>);

#[derive(Debug)]
struct Partial {
    tensor: TensorShape,
    bytes: Vec<u8>,
    /// Ranges of bytes that are there.
    present: RangeSet<usize>,
}

/// Why a piece was not added.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PieceError {
    /// It lies outside its tensor.
    #[error("{size} bytes at {offset} are not within its {len} bytes; ignored")]
    Outside {
        offset: usize,
        size: usize,
        len: usize,
    },
    #[error("its data arrives in pieces, which cannot be joined: {0}")]
    Memory(NodeFailure),
}

impl TensorPieces {
    /// Adds a piece of `tensor`, whose `len` bytes are at `address`. If it is then complete, returns
    /// and forgets it.
    ///
    /// # Errors
    /// See [`PieceError`]; then nothing has changed.
    pub(crate) fn add(
        &mut self,
        address: usize,
        (tensor, len): (TensorShape, usize),
        offset: usize,
        piece: &[u8],
    ) -> Result<Option<Vec<u8>>, PieceError> {
        let end = offset.checked_add(piece.len()).filter(|end| *end <= len);
        let end = end.ok_or(PieceError::Outside {
            offset,
            size: piece.len(),
            len,
        })?;
        let is_same = |partial: &Partial| partial.tensor == tensor && partial.bytes.len() == len;
        let mut partial = match self.0.remove(&address) {
            Some(partial) if is_same(&partial) => partial,
            // The first piece, or another tensor lies there now.
            other => match memory::zeroed(len) {
                Ok(bytes) => Partial {
                    tensor,
                    bytes,
                    present: RangeSet::default(),
                },
                Err(error) => {
                    other.and_then(|other| self.0.insert(address, other));
                    return Err(PieceError::Memory(error));
                }
            },
        };
        partial.bytes[offset..end].copy_from_slice(piece);
        if offset < end {
            partial.present.insert(offset..end);
        }
        if covers(&partial.present, &(0..len)) {
            return Ok(Some(partial.bytes));
        }
        self.0.insert(address, partial);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::offload::tests::{floats, halves};

    const SIZE: [i64; 4] = [1; 4];

    #[test]
    fn a_piece_outside_changes_nothing() {
        let mut pieces = TensorPieces::default();
        assert!(pieces.add(64, (halves(SIZE), 4), 3, &[1, 2]).is_err());
        assert!(
            pieces
                .add(64, (halves(SIZE), 4), usize::MAX, &[1, 2])
                .is_err()
        );
        assert_eq!(pieces.add(64, (halves(SIZE), 4), 0, &[1, 2]).unwrap(), None);
        // No memory for another tensor.
        let full = pieces.add(64, (halves(SIZE), usize::MAX), 0, &[7]);
        assert!(matches!(full, Err(PieceError::Memory(_))));
        let whole = pieces.add(64, (halves(SIZE), 4), 2, &[3, 4]).unwrap();
        assert_eq!(whole, Some(vec![1, 2, 3, 4]));
        assert!(pieces.0.is_empty());
    }

    #[test]
    fn another_tensor_at_the_same_address_begins_anew() {
        let mut pieces = TensorPieces::default();
        assert_eq!(pieces.add(64, (halves(SIZE), 4), 0, &[1, 2]).unwrap(), None);
        assert_eq!(pieces.add(64, (halves(SIZE), 3), 2, &[7]).unwrap(), None);
        let whole = pieces.add(64, (halves(SIZE), 3), 0, &[5, 6]).unwrap();
        assert_eq!(whole, Some(vec![5, 6, 7]));
        // As many bytes of other numbers.
        assert_eq!(pieces.add(64, (halves(SIZE), 2), 0, &[1]).unwrap(), None);
        assert_eq!(pieces.add(64, (floats(SIZE), 2), 1, &[2]).unwrap(), None);
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        /// Compares with a map of the bytes that were written.
        #[test]
        fn complete_exactly_when_each_byte_was_written(
            len in 1..40_usize,
            parts in proptest::collection::vec((0..40_usize, 0..20_usize, any::<u8>()), 1..30),
        ) {
            let mut pieces = TensorPieces::default();
            let mut written = vec![None; len];
            for (offset, size, value) in parts {
                let piece = vec![value; size];
                let added = pieces.add(64, (halves(SIZE), len), offset, &piece);
                if offset + size > len {
                    prop_assert!(added.is_err());
                    continue;
                }
                written[offset..offset + size].fill(Some(value));
                let all: Option<Vec<u8>> = written.iter().copied().collect();
                prop_assert_eq!(added.unwrap(), all.clone());
                if all.is_some() {
                    written.fill(None);
                }
            }
        }
    }
}
