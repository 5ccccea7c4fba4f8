// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a plan, with every offset worked out.

use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::{MatmulType, ProgramOptions};
use serde::Serialize;

use super::{KTile, Plan, to_u32};
use crate::dtype::ROW_MULTIPLE;
use crate::layout;

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
    /// Rows of every row tile but the last.
    pub row_tile: usize,
    /// The K tiles, one after the other.
    pub k_tiles: Vec<KTile>,
    /// The tiles of A in the activation buffer, by row tile, then K tile.
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
    /// Which operand the next task most often finds in CBUF.
    pub stationary: Stationary,
    /// The tasks, in the order in which they run.
    pub tasks: Vec<TaskPlan>,
    /// Bytes of the output buffer.
    pub output_bytes: usize,
}

/// Which operand stays in CBUF from task to task of a job: by that they are in
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stationary {
    /// A tile of A meets all its channels, then comes the next tile.
    #[default]
    Activations,
    /// A tile of B meets all its rows.
    Weights,
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

/// A range of channels that one job computes, in a block.
struct Pass {
    block: usize,
    n: Range<usize>,
}

impl Plan {
    /// The steps, in the order in which they must be added up: the first K
    /// tiles of a part of C before the later ones.
    #[must_use]
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Step> + Send + Sync + use<> {
        let plan = self.clone();
        let passes = self.passes();
        let waves = passes.iter().map(Vec::len).max().unwrap_or(0);
        let bands = self.row_tile_count().div_ceil(self.row_tiles_per_job);
        let depths = self.weights.k_tile_count().div_ceil(self.k_tiles_per_job);
        (0..bands * waves * depths).map(move |index| {
            let (band, rest) = (index / (waves * depths), index % (waves * depths));
            let (wave, depth) = (rest / depths, rest % depths);
            let band = plan.band(band, depth);
            let passes = passes.iter().filter_map(|p| p.get(wave));
            let jobs = passes.map(|pass| plan.job(pass, &band));
            Step {
                jobs: jobs.collect(),
            }
        })
    }

    pub(super) fn row_tile_count(&self) -> usize {
        self.m.div_ceil(self.row_tile)
    }

    /// For each device, the ranges of channels that it computes in turn.
    fn passes(&self) -> Vec<Vec<Pass>> {
        let width = self.groups_per_job * self.weights.dtype.kernel_group();
        let mut passes = Vec::new();
        for (block, b) in self.weights.blocks.iter().enumerate() {
            if passes.len() <= b.device {
                passes.resize_with(b.device + 1, Vec::new);
            }
            passes[b.device].extend((b.n.start..b.n.end).step_by(width).map(|start| Pass {
                block,
                n: start..(start + width).min(b.n.end),
            }));
        }
        passes
    }

    /// Band `band` of the rows, with the K tiles of range `depth` of them.
    fn band(&self, band: usize, depth: usize) -> Arc<Band> {
        let height = self.row_tile * self.row_tiles_per_job;
        let start = band * height;
        let rows = start..(start + height).min(self.m);
        let first = depth * self.k_tiles_per_job;
        let end = (first + self.k_tiles_per_job).min(self.weights.k_tile_count());
        let k_tiles: Vec<_> = (first..end).map(|i| self.weights.k_tile(i)).collect();

        let mut activations = Vec::new();
        let mut activation_bytes = 0;
        for start in rows.clone().step_by(self.row_tile) {
            let tile_rows = start..(start + self.row_tile).min(rows.end);
            let padded = tile_rows.len().next_multiple_of(ROW_MULTIPLE);
            for k_tile in &k_tiles {
                activations.push(ActivationTile {
                    rows: tile_rows.clone(),
                    padded,
                    k_tile: k_tile.clone(),
                    offset: activation_bytes,
                });
                activation_bytes +=
                    layout::activation_bytes(self.weights.dtype, padded, k_tile.padded);
            }
        }
        Arc::new(Band {
            rows,
            row_tile: self.row_tile,
            k_tiles,
            activations,
            activation_bytes,
        })
    }

    fn job(&self, pass: &Pass, band: &Arc<Band>) -> JobPlan {
        let dtype = self.weights.dtype;
        let block = &self.weights.blocks[pass.block];
        let mut tasks = Vec::new();
        let k_tiles = band.k_tiles.len();
        let mut output_bytes = 0;
        let grid = Grid {
            row_tiles: band.activations.len() / k_tiles.max(1),
            k_tiles,
            n_tiles: pass.n.len().div_ceil(self.n_tile),
        };
        for (activation, n_tile) in grid.order(self.stationary) {
            let a = &band.activations[activation];
            let start = pass.n.start + n_tile * self.n_tile;
            let n = start..(start + self.n_tile).min(pass.n.end);
            let n_padded = n.len().next_multiple_of(dtype.kernel_group());
            let in_block = start - block.n.start;
            let b = self.weights.weight_offset(block, a.k_tile.index, in_block);
            tasks.push(TaskPlan {
                activation,
                n,
                m_padded: to_u32(a.padded),
                k_padded: to_u32(a.k_tile.padded),
                n_padded: to_u32(n_padded),
                // Buffers are below 2 GiB, so offsets have 32 bits.
                a: to_u32(a.offset),
                b: to_u32(b),
                c: to_u32(output_bytes),
            });
            output_bytes += layout::output_bytes(self.ty, a.padded, n_padded);
        }
        JobPlan {
            device: block.device,
            block: pass.block,
            ty: self.ty,
            program: self.program,
            band: Arc::clone(band),
            n: pass.n.clone(),
            stationary: self.stationary,
            tasks,
            output_bytes,
        }
    }
}

impl JobPlan {
    /// The tasks of one activation tile, in the order of their channels.
    pub fn tasks_of(&self, activation: usize) -> impl Iterator<Item = &TaskPlan> {
        let activations = self.band.activations.len().max(1);
        let grid = Grid {
            row_tiles: activations / self.band.k_tiles.len().max(1),
            k_tiles: self.band.k_tiles.len(),
            n_tiles: self.tasks.len() / activations,
        };
        (0..grid.n_tiles).map(move |n| &self.tasks[grid.index(self.stationary, activation, n)])
    }
}

/// Tiles of a job, each of A with each of N. Those of A are counted by rows,
/// then K.
#[derive(Clone, Copy)]
struct Grid {
    row_tiles: usize,
    k_tiles: usize,
    n_tiles: usize,
}

impl Grid {
    /// The tiles of A and N of each task, as they run: of a part of C those of
    /// earlier K tiles first.
    fn order(self, stationary: Stationary) -> impl Iterator<Item = (usize, usize)> {
        let Self {
            row_tiles,
            k_tiles,
            n_tiles,
        } = self;
        (0..row_tiles * k_tiles * n_tiles).map(move |index| match stationary {
            Stationary::Activations => (index / n_tiles, index % n_tiles),
            Stationary::Weights => {
                let (outer, row) = (index / row_tiles, index % row_tiles);
                (row * k_tiles + outer / n_tiles, outer % n_tiles)
            }
        })
    }

    /// Where in that order the task of these tiles is.
    const fn index(self, stationary: Stationary, activation: usize, n_tile: usize) -> usize {
        match stationary {
            Stationary::Activations => activation * self.n_tiles + n_tile,
            Stationary::Weights => {
                let (row, depth) = (activation / self.k_tiles, activation % self.k_tiles);
                (depth * self.n_tiles + n_tile) * self.row_tiles + row
            }
        }
    }
}
