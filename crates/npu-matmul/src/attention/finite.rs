// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys and values that are not finite. The NPU would multiply them by the zeros that a
//! mask makes of probabilities, and 0 times infinity is NaN: so it gets zeros instead of
//! their vectors, and the rows that see one get NaN behind it.

use std::sync::{Mutex, PoisonError};

use half::f16;
use npu_kernels::half::all_finite;

use super::call::HeadRows;
use crate::matrix::MatrixView;

/// A key whose vector, or that of its value, has a NaN or an infinity.
#[derive(Clone, Copy, Debug)]
struct LostKey {
    call: usize,
    kv_head: usize,
    key: usize,
}

/// Such keys of all calls, as they were found while packing; several times if several
/// devices packed them.
#[derive(Debug, Default)]
pub(super) struct LostKeys(Mutex<Vec<LostKey>>);

impl LostKeys {
    /// `block`, or a copy of it in `copy` whose vectors that are not finite are zeros.
    /// Those are kept as keys of this head, the first of which is `first`.
    pub(super) fn replace<'a>(
        &self,
        [call, kv_head]: [usize; 2],
        first: usize,
        block: MatrixView<'a, f16>,
        copy: &'a mut Vec<f16>,
    ) -> MatrixView<'a, f16> {
        if (0..block.rows()).all(|row| all_finite(block.row(row))) {
            return block;
        }
        copy.clear();
        for row in 0..block.rows() {
            let vector = block.row(row);
            if all_finite(vector) {
                copy.extend_from_slice(vector);
                continue;
            }
            copy.resize(copy.len() + vector.len(), f16::ZERO);
            let key = first + row;
            let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            keys.push(LostKey { call, kv_head, key });
        }
        // There are as many as it has.
        MatrixView::new(copy, block.rows(), block.columns()).unwrap_or_default()
    }

    /// Those of this head, once each.
    pub(super) fn of_head(&mut self, [call, kv_head]: [usize; 2]) -> Vec<usize> {
        let keys = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let of_head = keys
            .iter()
            .filter(|lost| (lost.call, lost.kv_head) == (call, kv_head));
        let mut keys: Vec<_> = of_head.map(|lost| lost.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Whether this row of a head sees one of these keys.
pub(super) fn sees(
    mask: Option<HeadRows<'_, f16>>,
    head: usize,
    row: usize,
    keys: &[usize],
) -> bool {
    let mask = mask.map(|mask| mask.vector(head % mask.heads(), row));
    let is_seen = |key: &usize| mask.is_none_or(|mask| mask[*key] != f16::NEG_INFINITY);
    keys.iter().any(is_seen)
}
