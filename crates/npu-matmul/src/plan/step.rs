// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps, jobs and tasks of a plan, with the offsets of their operands.

use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::{MatmulType, ProgramOptions};

/// A part of K: the channels `k`, padded to `padded` channels in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KTile {
    /// Index among the K tiles.
    pub index: usize,
    /// The channels of the caller's matrices.
    pub k: Range<usize>,
    /// Depth in memory: a multiple of [`WeightPlan::k_multiple`](super::WeightPlan::k_multiple).
    pub padded: usize,
}

/// Jobs that run at the same time, at most one for each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The jobs, each on a different device.
    pub jobs: Vec<JobPlan>,
}

/// Rows and K tiles of A, and their offsets in an activation buffer. Each device that reads them
/// has a copy, since a buffer has an address only in its own file descriptor.
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
    /// The K tile.
    pub k_tile: KTile,
    /// Byte offset in the buffer.
    pub offset: usize,
}

/// One job: the share of one device in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Index into the device pool.
    pub device: usize,
    /// Index into [`WeightPlan::blocks`](super::WeightPlan::blocks).
    pub block: usize,
    /// Operand and result types of its tasks.
    pub ty: MatmulType,
    /// Options of their register programs.
    pub program: ProgramOptions,
    /// The part of A that it reads. Jobs that read the same part share it.
    pub band: Arc<Band>,
    /// Output channels of the caller's matrix.
    pub n: Range<usize>,
    /// The tasks in order: all channels for one tile of A, then the next tile.
    pub tasks: Vec<TaskPlan>,
    /// Bytes of the output buffer.
    pub output_bytes: usize,
    /// Upper bound of its time on one core, in nanoseconds.
    pub time_bound_ns: u64,
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
