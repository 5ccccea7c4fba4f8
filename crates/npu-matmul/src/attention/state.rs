// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that an engine keeps for attention from call to call.

use std::sync::Arc;

use half::f16;

use super::plan::{AttentionJobs, TileKey};
use crate::cache::LruMap;
use crate::scratch::Scratch;

/// Tile shapes whose jobs are kept: those of a long prompt, whose batches see more and more keys.
const TILES_KEPT: usize = 1024;

/// State that an engine keeps for attention from call to call.
#[derive(Debug)]
pub(crate) struct AttentionState {
    pub(super) tiles: LruMap<TileKey, Arc<AttentionJobs>>,
    pub(super) masks: Scratch<u8>,
    pub(super) queries: Scratch<f16>,
    /// Scores of a few rows, and one number for each row.
    pub(super) floats: Scratch<f32>,
}

impl Default for AttentionState {
    fn default() -> Self {
        Self {
            tiles: LruMap::new(TILES_KEPT),
            masks: Scratch::default(),
            queries: Scratch::default(),
            floats: Scratch::default(),
        }
    }
}
