// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tile of attention: the work of two jobs.

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
    /// Heads of the call.
    pub(super) heads: Range<usize>,
    /// Rows of each of these heads.
    pub(super) rows: Range<usize>,
    pub(super) blocks: Vec<VisibleBlock>,
}

impl Tile {
    /// Number of rows of the tile. It has all heads of the first row, then those of the next.
    pub(super) fn m(&self) -> usize {
        self.heads.len() * self.rows.len()
    }

    pub(super) fn m_padded(&self) -> usize {
        self.m().next_multiple_of(ROW_MULTIPLE)
    }

    /// Head and row in the call for row `at` of the tile.
    pub(super) fn head_and_row(&self, at: usize) -> (usize, usize) {
        let heads = self.heads.len();
        (self.heads.start + at % heads, self.rows.start + at / heads)
    }

    /// Amount of multiplication.
    pub(super) fn work(&self) -> u64 {
        self.tiling.work(self.m(), self.blocks.len())
    }
}
