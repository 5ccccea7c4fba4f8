// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys and values with a NaN or infinity. The mask turns their probabilities into zeros, but 0
//! times infinity is NaN on the NPU. So the NPU gets zeros instead of these vectors, and the CPU
//! then sets the rows that see one to NaN.

use std::collections::BTreeSet;
use std::sync::Mutex;

use half::f16;
use npu_kernels::half::all_finite;

use crate::matrix::MatrixView;
use crate::numbers::sync::lock;
use crate::plan::attention::call::HeadRows;

/// Keys with a NaN or infinity in their vector or in that of their value, of all calls, collected
/// while packing: call, KV head, key.
#[derive(Debug, Default)]
pub(super) struct LostKeys(Mutex<BTreeSet<[usize; 3]>>);

impl LostKeys {
    /// Returns `block`, or a copy in `copy` with such vectors replaced by zeros. Records them as
    /// keys of this head, counted from `first`.
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
            lock(&self.0).insert([call, kv_head, key]);
        }
        // Never `None`: the copy has as many elements as the block.
        MatrixView::new(copy, block.rows(), block.columns()).unwrap_or_default()
    }

    /// The keys of this head, in order.
    pub(super) fn of_head(&self, [call, kv_head]: [usize; 2]) -> Vec<usize> {
        let keys = lock(&self.0);
        let head_keys = keys.range([call, kv_head, 0]..[call, kv_head + 1, 0]);
        head_keys.map(|[.., key]| *key).collect()
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
