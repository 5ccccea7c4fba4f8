// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps, jobs and tasks of a plan, with the offsets of their operands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::{MatmulType, ProgramOptions};

use super::cost::task_time_bound_ns;
use super::matmul::Plan;
use super::tiles::to_u32;
use super::weights::KTile;
use crate::dtype::{Dtype, ROW_MULTIPLE};
use crate::layout;

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
    /// Rows in memory: a multiple of 4.
    pub padded: usize,
    /// The tiles of A in the activation buffer, one for each K tile.
    pub activations: Vec<ActivationTile>,
    /// Bytes of the activation buffer.
    pub activation_bytes: usize,
}

/// A tile of A: the rows of its band, and a K tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivationTile {
    /// The K tile.
    pub k_tile: KTile,
    /// Byte offset in the buffer.
    pub offset: usize,
}

impl Band {
    /// A band of these rows and K tiles of A. In memory one K tile follows the other.
    pub(crate) fn new(
        dtype: Dtype,
        rows: Range<usize>,
        k_tiles: impl Iterator<Item = KTile>,
    ) -> Arc<Self> {
        let padded = rows.len().next_multiple_of(ROW_MULTIPLE);
        let mut activation_bytes = 0;
        let activations = k_tiles.map(|k_tile| {
            let offset = activation_bytes;
            activation_bytes += layout::activation_bytes(dtype, padded, k_tile.padded);
            ActivationTile { k_tile, offset }
        });
        Arc::new(Self {
            rows,
            padded,
            activations: activations.collect(),
            activation_bytes,
        })
    }

    /// Byte offset of `part` in the activation buffer of this band, which has the same rows and at
    /// least the K tiles of `part`.
    pub(crate) fn offset_of(&self, part: &Self) -> Option<usize> {
        let k_tile = |tile: &ActivationTile| tile.k_tile.index;
        let first = part.activations.first().map(k_tile)?;
        let at = self
            .activations
            .iter()
            .position(|tile| k_tile(tile) == first)?;
        let tiles = self.activations.get(at..at + part.activations.len())?;
        let mut of_both = tiles.iter().zip(&part.activations);
        let is_part =
            self.rows == part.rows && of_both.all(|(own, of_part)| own.k_tile == of_part.k_tile);
        is_part.then(|| self.activations[at].offset)
    }
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
    /// A job without tasks.
    pub(crate) const fn new(
        ty: MatmulType,
        program: ProgramOptions,
        device: usize,
        block: usize,
        band: Arc<Band>,
        n: Range<usize>,
    ) -> Self {
        Self {
            device,
            block,
            ty,
            program,
            band,
            n,
            tasks: Vec::new(),
            output_bytes: 0,
            time_bound_ns: 0,
        }
    }

    /// Adds a task: this tile of the band times the channels `n`, whose weights are at `b` in the
    /// block. It writes behind the results of the task before.
    pub(crate) fn push(&mut self, activation: usize, n: Range<usize>, b: usize) {
        let dtype = Dtype::of(self.ty);
        let (a, padded) = (&self.band.activations[activation], self.band.padded);
        let n_padded = n.len().next_multiple_of(dtype.kernel_group());
        self.tasks.push(TaskPlan {
            activation,
            n,
            m_padded: to_u32(padded),
            k_padded: to_u32(a.k_tile.padded),
            n_padded: to_u32(n_padded),
            // Buffers are below 2 GiB, so offsets have 32 bits.
            a: to_u32(a.offset),
            b: to_u32(b),
            c: to_u32(self.output_bytes),
        });
        self.output_bytes += layout::output_bytes(self.ty, padded, n_padded);
        self.time_bound_ns += task_time_bound_ns(dtype, padded, a.k_tile.padded, n_padded);
    }

    /// The tasks of one activation tile, in the order of their channels.
    pub fn tasks_of(&self, activation: usize) -> &[TaskPlan] {
        let n_tiles = self.tasks.len() / self.band.activations.len().max(1);
        let first = activation * n_tiles;
        self.tasks.get(first..first + n_tiles).unwrap_or_default()
    }
}

impl Plan {
    /// The steps, in the order in which the CPU must add their results: for each part of C, the
    /// first K tiles come first.
    #[must_use]
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Step> + Send + Sync + use<> {
        let plan = self.clone();
        let channels = self.channels_of_jobs();
        let in_turn = channels.iter().map(Vec::len).max().unwrap_or(0);
        let bands = self.m.div_ceil(self.row_tile);
        let depths = self.weights.k_tile_count().div_ceil(self.k_tiles_per_job);
        (0..bands * in_turn * depths).map(move |index| {
            let (band, rest) = (index / (in_turn * depths), index % (in_turn * depths));
            let (turn, depth) = (rest / depths, rest % depths);
            let band = plan.band(band, depth);
            let jobs = channels.iter().filter_map(|device| device.get(turn));
            let jobs = jobs.map(|(block, n)| plan.job(*block, n.clone(), &band));
            Step {
                jobs: jobs.collect(),
            }
        })
    }

    /// For each device, the blocks and channels of the jobs that it runs in turn.
    fn channels_of_jobs(&self) -> Vec<Vec<(usize, Range<usize>)>> {
        let width = self.groups_per_job * self.weights.dtype.kernel_group();
        let mut devices: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (block, b) in self.weights.blocks.iter().enumerate() {
            let starts = b.n.clone().step_by(width);
            let jobs = starts.map(|start| (block, start..(start + width).min(b.n.end)));
            devices.entry(b.device).or_default().extend(jobs);
        }
        devices.into_values().collect()
    }

    /// Band `band` of the rows, with the K tiles of range `depth`.
    fn band(&self, band: usize, depth: usize) -> Arc<Band> {
        let start = band * self.row_tile;
        let rows = start..(start + self.row_tile).min(self.m);
        let first = depth * self.k_tiles_per_job;
        let end = (first + self.k_tiles_per_job).min(self.weights.k_tile_count());
        let k_tiles = (first..end).map(|index| self.weights.k_tile(index));
        Band::new(self.weights.dtype, rows, k_tiles)
    }

    /// The job of channels `n` of a block.
    fn job(&self, block: usize, n: Range<usize>, band: &Arc<Band>) -> JobPlan {
        let weights = &self.weights.blocks[block];
        let mut job = JobPlan::new(
            self.ty,
            self.program,
            weights.device,
            block,
            Arc::clone(band),
            n.clone(),
        );
        for (activation, a) in band.activations.iter().enumerate() {
            for start in n.clone().step_by(self.n_tile) {
                let tile = start..(start + self.n_tile).min(n.end);
                let in_block = start - weights.n.start;
                let b = self
                    .weights
                    .weight_offset(weights, a.k_tile.index, in_block);
                job.push(activation, tile, b);
            }
        }
        job
    }
}
