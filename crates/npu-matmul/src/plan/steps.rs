// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps, jobs and tasks of a plan, with the offsets of their operands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::ProgramOptions;

use super::cost::task_time_bound_ns;
use super::matmul::Plan;
use super::tiles::{pieces, to_u32};
use super::weights::KTile;
use crate::numbers::dtype::{Dtype, ROW_MULTIPLE};
use crate::numbers::layout;

/// Jobs that run at the same time, at most one for each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The jobs, each on a different device.
    pub jobs: Vec<JobPlan>,
}

/// Rows and K tiles of A, which share an activation buffer. Each device that reads them has a copy,
/// since a buffer has an address only in its own file descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// Rows of A and C.
    pub rows: Range<usize>,
    /// Rows in memory: a multiple of 4.
    pub padded: usize,
    /// The K tiles. In the activation buffer the tiles of A follow each other.
    pub k_tiles: Vec<KTile>,
    /// Bytes of the activation buffer.
    pub activation_bytes: usize,
}

impl Band {
    /// A band of these rows and K tiles of A.
    pub(crate) fn new(
        dtype: Dtype,
        rows: Range<usize>,
        k_tiles: impl Iterator<Item = KTile>,
    ) -> Arc<Self> {
        let padded = rows.len().next_multiple_of(ROW_MULTIPLE);
        let k_tiles: Vec<_> = k_tiles.collect();
        let depth = k_tiles.iter().map(|tile| tile.padded).sum();
        Arc::new(Self {
            rows,
            padded,
            k_tiles,
            activation_bytes: layout::activation_bytes(dtype, padded, depth),
        })
    }
}

/// One job: the share of one device in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Index into the device pool.
    pub device: usize,
    /// Index into [`WeightPlan::blocks`](super::WeightPlan::blocks).
    pub block: usize,
    /// Precision of its tasks.
    pub dtype: Dtype,
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
    /// The tile of A: an index into [`Band::k_tiles`].
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
    /// Bytes that it takes on the heap, with its own copy of the band.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Band>()
            + self.band.k_tiles.capacity() * size_of::<KTile>()
            + self.tasks.capacity() * size_of::<TaskPlan>()
    }

    /// A job without tasks.
    pub(crate) const fn new(
        dtype: Dtype,
        program: ProgramOptions,
        device: usize,
        block: usize,
        band: Arc<Band>,
        n: Range<usize>,
    ) -> Self {
        Self {
            device,
            block,
            dtype,
            program,
            band,
            n,
            tasks: Vec::new(),
            output_bytes: 0,
            time_bound_ns: 0,
        }
    }

    /// Adds a task for each tile of the band and each of these tiles of channels. `weights` returns
    /// the offset in the block of the weights of a K tile from a channel on. A task writes behind
    /// the results of the task before.
    pub(crate) fn with_tasks(
        mut self,
        channels: &[Range<usize>],
        weights: impl Fn(&KTile, usize) -> usize,
    ) -> Self {
        let (dtype, band) = (self.dtype, &*self.band);
        let mut a = 0;
        for (activation, k_tile) in band.k_tiles.iter().enumerate() {
            for n in channels {
                let n_padded = n.len().next_multiple_of(dtype.kernel_group());
                let (m, k) = (band.padded, k_tile.padded);
                self.tasks.push(TaskPlan {
                    activation,
                    n: n.clone(),
                    m_padded: to_u32(m),
                    k_padded: to_u32(k),
                    n_padded: to_u32(n_padded),
                    // Buffers are below 2 GiB, so offsets have 32 bits.
                    a: to_u32(a),
                    b: to_u32(weights(k_tile, n.start)),
                    c: to_u32(self.output_bytes),
                });
                self.output_bytes += layout::output_bytes(dtype, m, n_padded);
                self.time_bound_ns += task_time_bound_ns(dtype, m, k, n_padded);
            }
            a += layout::activation_bytes(dtype, band.padded, k_tile.padded);
        }
        self
    }

    /// Byte offset of its band in the activation buffer of `band`, if that has the same rows and
    /// all K tiles of this job.
    pub(crate) fn offset_in(&self, band: &Band) -> Option<usize> {
        let own = &self.band.k_tiles;
        let first = own.first()?;
        let first = band.k_tiles.iter().position(|tile| tile == first)?;
        let (before, from_first) = band.k_tiles.split_at(first);
        let is_part = band.rows == self.band.rows && from_first.starts_with(own);
        let depth = before.iter().map(|tile| tile.padded).sum();
        is_part.then(|| layout::activation_bytes(self.dtype, band.padded, depth))
    }

    /// The tasks of one activation tile, in the order of their channels.
    pub fn tasks_of(&self, activation: usize) -> &[TaskPlan] {
        let n_tiles = self.tasks.len() / self.band.k_tiles.len().max(1);
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
            let jobs = pieces(b.n.clone(), width).map(|n| (block, n));
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
        let channels: Vec<_> = pieces(n.clone(), self.n_tile).collect();
        let (dtype, band) = (self.weights.dtype, Arc::clone(band));
        JobPlan::new(dtype, self.program, weights.device, block, band, n).with_tasks(
            &channels,
            |k_tile, first| {
                let in_block = first - weights.n.start;
                self.weights.weight_offset(weights, k_tile.index, in_block)
            },
        )
    }
}
