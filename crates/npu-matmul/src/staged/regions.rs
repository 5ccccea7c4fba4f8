// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is where in the buffers of a staged product.

use std::ops::Range;

use rknpu_regcmd::{Layouts, MatrixLayout};

use crate::dtype::Dtype;
use crate::layout::{ActivationLayout, Order, Position, ResultLayout};
use crate::plan::JobPlan;

/// A buffer of activations: some rows and channels of A, on one device. Every
/// device that reads them has a buffer of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivationBuffer {
    /// Index into the device pool.
    pub device: usize,
    /// Rows of A.
    pub rows: Range<usize>,
    /// Channels: a part of K.
    pub channels: Range<usize>,
    /// Its tiles, which are all of it.
    pub regions: Vec<ActivationRegion>,
    /// Bytes of the tiles.
    pub bytes: usize,
}

/// A tile of A in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivationRegion {
    /// Rows of A.
    pub rows: Range<usize>,
    /// Channels: a part of K.
    pub channels: Range<usize>,
    /// Layout of the activations.
    pub layout: ActivationLayout,
}

/// A buffer of results: some rows and channels of C, written by one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultBuffer {
    /// Index into the device pool.
    pub device: usize,
    /// The activation buffer that its job reads.
    pub activations: usize,
    /// Rows of C.
    pub rows: Range<usize>,
    /// Output channels: a part of N.
    pub channels: Range<usize>,
    /// Its tiles, which are all of it.
    pub regions: Vec<ResultRegion>,
    /// Bytes of the tiles.
    pub bytes: usize,
}

/// A tile of C in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRegion {
    /// Rows of C.
    pub rows: Range<usize>,
    /// Output channels: a part of N.
    pub channels: Range<usize>,
    /// The part of K that its sums are of: all of it unless the weights' plan
    /// cuts K; then C is the sum of the regions of all parts.
    pub depth: Range<usize>,
    /// Layout of the results.
    pub layout: ResultLayout,
}

impl ActivationRegion {
    /// Where element (`row`, `channel`) of A is in the buffer, if it is in this
    /// region.
    #[must_use]
    pub fn position(&self, row: usize, channel: usize) -> Option<Position> {
        let inside = self.rows.contains(&row) && self.channels.contains(&channel);
        let (rows, channels) = (self.rows.start, self.channels.start);
        inside.then(|| self.layout.position(row - rows, channel - channels))
    }
}

impl ResultRegion {
    /// The byte of the buffer at which element (`row`, `channel`) of C begins,
    /// if it is in this region.
    #[must_use]
    pub fn offset(&self, row: usize, channel: usize) -> Option<usize> {
        let inside = self.rows.contains(&row) && self.channels.contains(&channel);
        let (rows, channels) = (self.rows.start, self.channels.start);
        inside.then(|| self.layout.offset(row - rows, channel - channels))
    }
}

/// The buffer that `job` reads. In native order it has a region for each tile,
/// row-major it is one matrix.
pub(super) fn activations(dtype: Dtype, job: &JobPlan) -> ActivationBuffer {
    let band = &job.band;
    let channels = hull(band.k_tiles.iter().map(|tile| &tile.k));
    let layout = |offset, order| ActivationLayout {
        dtype,
        offset,
        order,
    };
    let regions = match layouts(job).a {
        MatrixLayout::Cube => {
            let tiles = band.activations.iter().map(|tile| ActivationRegion {
                rows: tile.rows.clone(),
                channels: tile.k_tile.k.clone(),
                layout: layout(tile.offset, Order::Native { rows: tile.padded }),
            });
            tiles.collect()
        }
        MatrixLayout::RowMajor { pitch } => vec![ActivationRegion {
            rows: band.rows.clone(),
            channels: channels.clone(),
            layout: layout(0, row_major(pitch)),
        }],
    };
    ActivationBuffer {
        device: job.device,
        rows: band.rows.clone(),
        channels,
        regions,
        bytes: band.activation_bytes,
    }
}

/// The buffer that `job` writes, which reads activation buffer `activations`;
/// regions as there.
pub(super) fn results(job: &JobPlan, activations: usize) -> ResultBuffer {
    let band = &job.band;
    let layout = |offset, order| ResultLayout {
        ty: job.ty,
        offset,
        order,
    };
    let regions = match layouts(job).c {
        MatrixLayout::Cube => {
            let tiles = job.tasks.iter().map(|task| {
                let tile = &band.activations[task.activation];
                ResultRegion {
                    rows: tile.rows.clone(),
                    channels: task.n.clone(),
                    depth: tile.k_tile.k.clone(),
                    layout: layout(
                        task.c as usize,
                        Order::Native {
                            rows: task.m_padded as usize,
                        },
                    ),
                }
            });
            tiles.collect()
        }
        MatrixLayout::RowMajor { pitch } => vec![ResultRegion {
            rows: band.rows.clone(),
            channels: job.n.clone(),
            depth: hull(band.k_tiles.iter().map(|tile| &tile.k)),
            layout: layout(0, row_major(pitch)),
        }],
    };
    ResultBuffer {
        device: job.device,
        activations,
        rows: band.rows.clone(),
        channels: job.n.clone(),
        regions,
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
