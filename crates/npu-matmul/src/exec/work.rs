// SPDX-License-Identifier: MIT OR Apache-2.0
//! One product: its matrices to buffers, and buffers to its matrix, on all
//! CPUs.

use std::any::TypeId;
use std::sync::Arc;

use rayon::prelude::*;

use super::collect::{Collect, OutputTile};
use super::target::ResultTarget;
use crate::counters::Counters;
use crate::layout;
use crate::matrix::MatrixView;
use crate::pack::{Format, pack_activation};
use crate::plan::{Band, JobPlan};
use crate::prepared::Prepared;
use crate::quantised::OutlierProduct;
use crate::times::{Section, SectionTimes};
use crate::unpack::{Partial, ROWS};
use crate::weights::Weights;

/// A product, whatever its formats.
pub(crate) trait Work<'a>: Send + Sync {
    /// B.
    fn weights(&self) -> &'a Weights;

    /// How it is cut.
    fn prepared(&self) -> &Arc<Prepared>;

    /// Where A comes from.
    fn matrix_id(&self) -> MatrixId;

    /// The tiles of A, into the activation buffer.
    fn pack(&self, clock: &SectionTimes, band: &Band, memory: &mut [u8]);

    /// Collects the tiles of C of one job.
    fn unpack(&mut self, clock: &SectionTimes, job: &JobPlan, memory: &[u8]);

    /// What is done when it is.
    fn counters(&self) -> Counters;

    /// The product of outlier columns, to be added when its result is complete.
    fn outliers(self: Box<Self>) -> Option<OutlierProduct<'a>>;
}

/// Tells matrices apart: two products of one matrix pack the same bytes where
/// they are cut alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixId {
    /// Of the first element. Who runs products has borrowed it for all of them.
    address: usize,
    columns: usize,
    format: TypeId,
}

/// A [`Work`]. `F` is the format of A; `collect` makes the result of what the
/// NPU writes.
pub(crate) struct PlannedProduct<'a, F: Format, C, T> {
    pub(crate) weights: &'a Weights,
    /// Of [`Partial::TILE_ROWS`] rows for
    /// each row of A.
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) a: MatrixView<'a, F::Host>,
    pub(crate) collect: C,
    /// C: as many rows as A has.
    pub(crate) out: T,
    /// Makes the product of outlier columns, which is added to this result.
    pub(crate) outliers: Option<ToOutlierProduct<'a, T>>,
}

/// Makes the product of outlier columns of the finished result that it is added to.
pub(crate) type ToOutlierProduct<'a, T> =
    Box<dyn FnOnce(T) -> OutlierProduct<'a> + Send + Sync + 'a>;

impl<F: Format, C: Collect, T> PlannedProduct<'_, F, C, T> {
    /// Rows of the plan, and so of tiles, for each row of the result.
    const TIMES: usize = C::Partial::TILE_ROWS;
}

impl<'a, F, C, T> Work<'a> for PlannedProduct<'a, F, C, T>
where
    F: Format,
    C: Collect,
    T: ResultTarget<Element = C::Out>,
{
    fn weights(&self) -> &'a Weights {
        self.weights
    }

    fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    fn matrix_id(&self) -> MatrixId {
        MatrixId {
            address: self.a.row(0).as_ptr().addr(),
            columns: self.a.columns(),
            format: TypeId::of::<F>(),
        }
    }

    fn counters(&self) -> Counters {
        if self.collect.is_part() {
            return Counters::default();
        }
        let (m, k, n) = (self.a.rows(), self.weights.k(), self.weights.n());
        Counters {
            products: 1,
            macs: m as u64 * k as u64 * n as u64,
            ..Counters::default()
        }
    }

    fn outliers(self: Box<Self>) -> Option<OutlierProduct<'a>> {
        let Self { outliers, out, .. } = *self;
        outliers.map(|outliers| outliers(out))
    }

    fn pack(&self, clock: &SectionTimes, band: &Band, memory: &mut [u8]) {
        let mut rest = memory;
        let mut tiles = Vec::with_capacity(band.activations.len());
        for tile in &band.activations {
            let bytes = layout::activation_bytes(F::DTYPE, tile.padded, tile.k_tile.padded);
            let (memory, behind) = rest.split_at_mut(bytes);
            tiles.push((tile, memory));
            rest = behind;
        }
        let a = self.a.repeated(Self::TIMES);
        let watch = || clock.stopwatch(Section::Pack);
        tiles
            .into_par_iter()
            .for_each_init(watch, |_, (tile, memory)| {
                let block = a.block(tile.rows.clone(), tile.k_tile.k.clone());
                pack_activation::<F>(block, tile.padded, memory);
            });
    }

    fn unpack(&mut self, clock: &SectionTimes, job: &JobPlan, memory: &[u8]) {
        let n = self.weights.n();
        let collect = &self.collect;
        let band = &*job.band;
        let depth = band.k_tiles.len();
        // Tiles have a multiple of four rows and begin at one, and the plan a
        // multiple of TIMES: all of these divide.
        let rows = band.rows.start / Self::TIMES..band.rows.end / Self::TIMES;
        let row_tile_rows = band.row_tile / Self::TIMES;
        let complete =
            band.k_tiles.last().map(|k| k.index + 1) == Some(self.weights.plan().k_tile_count());
        let collect_rows = |row_tile: usize, chunk: usize, out: &mut [C::Out]| {
            let first_row = chunk * ROWS;
            let first = row_tile * depth;
            for at in first..first + depth {
                let a = &band.activations[at];
                for task in job.tasks_of(at) {
                    let tile = OutputTile {
                        // The tile begins here; its rows end where the columns do.
                        bytes: &memory[task.c as usize..],
                        tile_rows: a.padded / Self::TIMES,
                        first_row,
                        row: rows.start + row_tile * row_tile_rows + first_row,
                        columns: task.n.clone(),
                        k_tile: a.k_tile.index,
                        completes: complete && at + 1 == first + depth,
                    };
                    collect.collect(&tile, out, n);
                }
            }
        };
        let watch = || clock.stopwatch(Section::Unpack);
        self.out.elements()[rows.start * n..rows.end * n]
            .par_chunks_mut(row_tile_rows * n)
            .enumerate()
            .for_each(|(row_tile, out)| {
                out.par_chunks_mut(ROWS * n)
                    .enumerate()
                    .for_each_init(watch, |_, (chunk, out)| collect_rows(row_tile, chunk, out));
            });
        if complete {
            self.out.complete(clock, rows, job.n.clone(), n);
        }
    }
}
