// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is computed at once on a device.

use std::ops::Range;
use std::sync::Arc;

use super::mask::VisibleBlock;
use super::plan::Tiling;
use crate::dtype::ROW_MULTIPLE;

/// Some rows of some heads that share a KV head.
pub(super) struct Tile {
    /// Index of the call.
    pub(super) call: usize,
    pub(super) kv_head: usize,
    pub(super) tiling: Arc<Tiling>,
    /// Of the call.
    pub(super) heads: Range<usize>,
    /// Of each of these heads.
    pub(super) rows: Range<usize>,
    pub(super) blocks: Vec<VisibleBlock>,
}

impl Tile {
    /// Rows of the tile: all heads of the first row, then those of the next.
    pub(super) fn m(&self) -> usize {
        self.heads.len() * self.rows.len()
    }

    pub(super) fn m_padded(&self) -> usize {
        self.m().next_multiple_of(ROW_MULTIPLE)
    }

    /// The head and the row of the call that row `at` of the tile is.
    pub(super) fn head_and_row(&self, at: usize) -> (usize, usize) {
        let heads = self.heads.len();
        (self.heads.start + at % heads, self.rows.start + at / heads)
    }

    /// How much there is to multiply.
    pub(super) fn work(&self) -> u64 {
        self.tiling.work(self.m(), self.blocks.len())
    }
}
