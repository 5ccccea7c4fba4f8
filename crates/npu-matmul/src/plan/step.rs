// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is computed, and where each operand is.

use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::{MatmulType, ProgramOptions};

/// A part of K: `padded` channels in memory, of which `k` exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KTile {
    /// Its place in the sequence of K tiles.
    pub index: usize,
    /// The channels of the caller's matrices.
    pub k: Range<usize>,
    /// Depth in memory: a multiple of [`WeightPlan::k_multiple`](super::WeightPlan::k_multiple).
    pub padded: usize,
}

/// At most one job for each device, which run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The jobs, each of another device.
    pub jobs: Vec<JobPlan>,
}

/// Rows and K tiles of A, and where they are in an activation buffer. Each
/// device that reads them has a copy: a buffer has an address only in its own
/// file descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// Rows of A and C.
    pub rows: Range<usize>,
    /// The K tiles, one after the other.
    pub k_tiles: Vec<KTile>,
    /// The tiles of A in the activation buffer, one for each K tile.
    pub activations: Vec<ActivationTile>,
    /// Bytes of the activation buffer.
    pub activation_bytes: usize,
}

/// A tile of A in the activation buffer of a band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivationTile {
    /// Rows of the caller's matrix.
    pub rows: Range<usize>,
    /// Rows in memory: a multiple of 4.
    pub padded: usize,
    /// Which K tile.
    pub k_tile: KTile,
    /// Byte offset in the buffer.
    pub offset: usize,
}

/// What one device computes in a step: one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Index into the device pool.
    pub device: usize,
    /// Index into [`WeightPlan::blocks`](super::WeightPlan::blocks).
    pub block: usize,
    /// What its tasks compute.
    pub ty: MatmulType,
    /// How their programs are made.
    pub program: ProgramOptions,
    /// What it reads of A; shared by the jobs that read the same.
    pub band: Arc<Band>,
    /// Output channels of the caller's matrix.
    pub n: Range<usize>,
    /// The tasks, in the order in which they run: a tile of A meets all its channels, then comes
    /// the next.
    pub tasks: Vec<TaskPlan>,
    /// Bytes of the output buffer.
    pub output_bytes: usize,
}

/// One task: a tile of A times a tile of B into a tile of C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlan {
    /// Index into [`Band::activations`].
    pub activation: usize,
    /// Output channels of the caller's matrix.
    pub n: Range<usize>,
    /// Rows of the tiles of A and C.
    pub m_padded: u32,
    /// Depth of the tiles of A and B.
    pub k_padded: u32,
    /// Channels of the tiles of B and C: whole kernel groups.
    pub n_padded: u32,
    /// Byte offset of the tile of A in the activation buffer.
    pub a: u32,
    /// Byte offset of the tile of B in the weight block.
    pub b: u32,
    /// Byte offset of the tile of C in the output buffer.
    pub c: u32,
}

impl JobPlan {
    /// The tasks of one activation tile, in the order of their channels.
    pub fn tasks_of(&self, activation: usize) -> &[TaskPlan] {
        let n_tiles = self.tasks.len() / self.band.activations.len().max(1);
        let first = activation * n_tiles;
        self.tasks.get(first..first + n_tiles).unwrap_or_default()
    }
}
