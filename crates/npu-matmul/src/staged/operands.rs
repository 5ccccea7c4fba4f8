// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is where in the buffers of a staged product, and who has them.

use std::mem;
use std::ops::Range;

use rknpu_regcmd::{Layouts, MatrixLayout};
use rocket_uapi::{Bo, DmaBuf, FrozenBo, JobBuilder};

use super::StagedError;
use crate::dtype::Dtype;
use crate::layout::{Order, Position, TileLayout};
use crate::plan::JobPlan;

/// A buffer of A, of which every device has its own for the rows and channels that it
/// reads; or of C, of which every job writes its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandBuffer {
    /// Index into the device pool.
    pub device: usize,
    /// Rows of A or C.
    pub rows: Range<usize>,
    /// Columns: of A a part of K, of C a part of N.
    pub columns: Range<usize>,
    /// Its tiles, which are all of it.
    pub tiles: Vec<OperandTile>,
    /// Bytes of the tiles.
    pub bytes: usize,
}

/// A tile in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandTile {
    /// Rows of A or C.
    pub rows: Range<usize>,
    /// Columns: of A a part of K, of C a part of N.
    pub columns: Range<usize>,
    /// The part of K that its numbers are of. That of a tile of C is all of K unless the
    /// weights' plan cuts K; then C is the sum of the tiles of all parts.
    pub depth: Range<usize>,
    /// Where its elements are.
    pub layout: TileLayout,
}

impl OperandTile {
    /// Where an element of A or C is in the buffer, if it is in this tile.
    #[must_use]
    pub fn position(&self, row: usize, column: usize) -> Option<Position> {
        let inside = self.rows.contains(&row) && self.columns.contains(&column);
        let (rows, columns) = (self.rows.start, self.columns.start);
        inside.then(|| self.layout.position(row - rows, column - columns))
    }
}

/// The buffer that `job` reads. In native order it has a tile for each of the job's,
/// row-major it is one matrix.
pub(super) fn activations(dtype: Dtype, job: &JobPlan) -> OperandBuffer {
    let band = &job.band;
    let channels = hull(band.k_tiles.iter().map(|tile| &tile.k));
    let tile = |rows: &Range<usize>, k: &Range<usize>, offset, order| OperandTile {
        rows: rows.clone(),
        columns: k.clone(),
        depth: k.clone(),
        layout: TileLayout {
            bits: dtype.input_bits(),
            offset,
            order,
        },
    };
    let tiles = match layouts(job).a {
        MatrixLayout::Cube => (band.activations.iter())
            .map(|a| {
                let order = Order::Native { rows: a.padded };
                tile(&a.rows, &a.k_tile.k, a.offset, order)
            })
            .collect(),
        MatrixLayout::RowMajor { pitch } => {
            vec![tile(&band.rows, &channels, 0, row_major(pitch))]
        }
    };
    OperandBuffer {
        device: job.device,
        rows: band.rows.clone(),
        columns: channels,
        tiles,
        bytes: band.activation_bytes,
    }
}

/// The buffer that `job` writes; tiles as there.
pub(super) fn results(job: &JobPlan) -> OperandBuffer {
    let band = &job.band;
    let layout = |offset, order| TileLayout {
        bits: job.ty.out_bytes() as usize * 8,
        offset,
        order,
    };
    let tiles = match layouts(job).c {
        MatrixLayout::Cube => (job.tasks.iter())
            .map(|task| {
                let a = &band.activations[task.activation];
                let rows = task.m_padded as usize;
                OperandTile {
                    rows: a.rows.clone(),
                    columns: task.n.clone(),
                    depth: a.k_tile.k.clone(),
                    layout: layout(task.c as usize, Order::Native { rows }),
                }
            })
            .collect(),
        MatrixLayout::RowMajor { pitch } => vec![OperandTile {
            rows: band.rows.clone(),
            columns: job.n.clone(),
            depth: hull(band.k_tiles.iter().map(|tile| &tile.k)),
            layout: layout(0, row_major(pitch)),
        }],
    };
    OperandBuffer {
        device: job.device,
        rows: band.rows.clone(),
        columns: job.n.clone(),
        tiles,
        bytes: job.output_bytes,
    }
}

/// Of all its tasks.
fn layouts(job: &JobPlan) -> Layouts {
    job.tasks
        .first()
        .map_or_else(Layouts::default, |task| task.layouts)
}

const fn row_major(pitch: u32) -> Order {
    Order::RowMajor {
        pitch: pitch as usize,
    }
}

/// From the least to the greatest.
fn hull<'a>(ranges: impl Iterator<Item = &'a Range<usize>>) -> Range<usize> {
    ranges
        .cloned()
        .reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
        .unwrap_or_default()
}

/// A buffer of an operand, with its name for errors.
#[derive(Debug)]
pub(super) struct OperandMemory {
    operand: &'static str,
    index: usize,
    held: Held,
}

/// Who has a buffer.
#[derive(Debug)]
enum Held {
    /// Nobody else.
    Open(Bo),
    /// Jobs read it.
    Frozen(FrozenBo),
    /// Other files have it too.
    Shared(DmaBuf),
    /// A job that writes it, or one that did not end.
    Job,
}

impl OperandMemory {
    pub(super) const fn new(operand: &'static str, index: usize, bo: Bo) -> Self {
        Self {
            operand,
            index,
            held: Held::Open(bo),
        }
    }

    fn exported(&self) -> StagedError {
        StagedError::Exported {
            operand: self.operand,
            index: self.index,
        }
    }

    pub(super) fn lost(&self) -> StagedError {
        StagedError::Lost {
            operand: self.operand,
            index: self.index,
        }
    }

    /// The buffer, to be written; one that jobs only read is thawed.
    pub(super) fn open(&mut self) -> Result<&mut Bo, StagedError> {
        self.held = match mem::replace(&mut self.held, Held::Job) {
            Held::Frozen(bo) => bo.thaw().map_or_else(Held::Frozen, Held::Open),
            other => other,
        };
        let (exported, lost) = (self.exported(), self.lost());
        match &mut self.held {
            Held::Open(bo) => Ok(bo),
            Held::Shared(_) => Err(exported),
            Held::Frozen(_) | Held::Job => Err(lost),
        }
    }

    /// The buffer, to be read.
    pub(super) fn read(&self) -> Result<&Bo, StagedError> {
        match &self.held {
            Held::Open(bo) => Ok(bo),
            Held::Shared(_) => Err(self.exported()),
            Held::Frozen(_) | Held::Job => Err(self.lost()),
        }
    }

    /// Has a job read it; jobs may, until it is written again.
    pub(super) fn read_by(&mut self, job: JobBuilder) -> Result<JobBuilder, StagedError> {
        self.held = match mem::replace(&mut self.held, Held::Job) {
            Held::Open(bo) => Held::Frozen(bo.freeze()),
            other => other,
        };
        match &self.held {
            Held::Frozen(bo) => Ok(job.reads(bo)),
            Held::Shared(dma_buf) => Ok(job.reads_shared(dma_buf)),
            Held::Open(_) | Held::Job => Err(self.lost()),
        }
    }

    /// Has a job write it, which keeps it until it gives it back.
    pub(super) fn written_by(&mut self, job: JobBuilder) -> Result<JobBuilder, StagedError> {
        match mem::replace(&mut self.held, Held::Job) {
            Held::Open(bo) => Ok(job.writes(bo)),
            Held::Shared(dma_buf) => {
                let job = job.writes_shared(&dma_buf);
                self.held = Held::Shared(dma_buf);
                Ok(job)
            }
            Held::Frozen(_) | Held::Job => Err(self.lost()),
        }
    }

    /// What a job gives back. One that has not ended keeps it.
    pub(super) fn give_back(&mut self, writes: Vec<Bo>) {
        if let Some(bo) = writes.into_iter().next() {
            self.held = Held::Open(bo);
        }
    }

    /// Other files get it too, from now on.
    pub(super) fn export(&mut self) -> Result<DmaBuf, Result<rocket_uapi::Error, StagedError>> {
        if let Held::Shared(dma_buf) = &self.held {
            return Ok(dma_buf.clone());
        }
        self.open().map_err(Err)?;
        match mem::replace(&mut self.held, Held::Job) {
            Held::Open(bo) => match bo.export() {
                Ok(dma_buf) => {
                    self.held = Held::Shared(dma_buf.clone());
                    Ok(dma_buf)
                }
                Err((error, bo)) => {
                    self.held = Held::Open(bo);
                    Err(Ok(error))
                }
            },
            _ => Err(Err(self.lost())),
        }
    }

    /// The buffer itself, if it is only ours.
    pub(super) fn into_own(mut self) -> Option<Bo> {
        self.open().ok()?;
        match self.held {
            Held::Open(bo) => Some(bo),
            _ => None,
        }
    }
}
