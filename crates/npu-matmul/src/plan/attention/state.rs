// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that an engine keeps for attention from call to call.

use std::sync::Arc;

use half::f16;

use super::plan::{AttentionSteps, TileKey};
use crate::numbers::cache::{KeptLimits, LruMap};
use crate::numbers::scratch::{Scratch, ScratchLimit};

/// Tile shapes whose jobs are kept: those of a long prompt, whose batches see more and more keys.
const TILES_KEPT: usize = 1024;

/// State that an engine keeps for attention from call to call.
#[derive(Debug)]
pub(crate) struct AttentionState {
    pub(crate) tiles: LruMap<TileKey, Arc<AttentionSteps>>,
    pub(crate) masks: Scratch<u8>,
    pub(crate) queries: Scratch<f16>,
    /// Scores of a few rows, and one number for each row.
    pub(crate) floats: Scratch<f32>,
}

impl AttentionState {
    /// Keeps `plan_bytes` of plans, and vectors within `scratch`.
    pub(crate) fn new(plan_bytes: usize, scratch: &Arc<ScratchLimit>) -> Self {
        let tiles = KeptLimits {
            count: TILES_KEPT,
            bytes: plan_bytes,
        };
        Self {
            tiles: LruMap::with_limits(tiles, |jobs| jobs.bytes()),
            masks: Scratch::within(scratch),
            queries: Scratch::within(scratch),
            floats: Scratch::within(scratch),
        }
    }
}
