// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrices to buffers, and buffers to matrices, on all CPUs.

use rayon::prelude::*;

use super::{FinishRow, Product};
use crate::layout;
use crate::pack::{Format, pack_activation};
use crate::plan::{Band, JobPlan};
use crate::unpack::{Destination, Mode, Partial, ROWS, unpack};

impl<F, T> Product<'_, F, T>
where
    F: Format + Sync,
    T: Partial,
    T::Sum: Send,
{
    /// The tiles of A, into the activation buffer.
    pub(super) fn pack(&self, band: &Band, memory: &mut [u8]) {
        let mut rest = memory;
        let mut tiles = Vec::with_capacity(band.activations.len());
        for tile in &band.activations {
            let bytes = layout::activation_bytes(F::PRECISION, tile.padded, tile.k_tile.padded);
            let (memory, behind) = rest.split_at_mut(bytes);
            tiles.push((tile, memory));
            rest = behind;
        }
        tiles.into_par_iter().for_each(|(tile, memory)| {
            let block = self.a.block(tile.rows.clone(), tile.k_tile.k.clone());
            pack_activation::<F>(block, tile.padded, memory);
        });
    }

    /// Adds the tiles of C of one job up into rows of `out`.
    pub(super) fn unpack(
        &self,
        job: &JobPlan,
        memory: &[u8],
        out: &mut [T::Sum],
        finish_row: &impl FinishRow<T::Sum>,
    ) {
        let n = self.weights.n();
        let band = &*job.band;
        let depth = band.k_tiles.len();
        let complete =
            band.k_tiles.last().map(|k| k.index + 1) == Some(self.plan.weights.k_tile_count());
        let unpack_rows = |row_tile: usize, chunk: usize, rows: &mut [T::Sum]| {
            let first_row = chunk * ROWS;
            let first_of_chunk = band.rows.start + row_tile * band.row_tile + first_row;
            for at in row_tile * depth..(row_tile + 1) * depth {
                let a = &band.activations[at];
                let mode = if a.k_tile.index == 0 {
                    Mode::Store
                } else {
                    Mode::Add
                };
                let last = complete && at + 1 == (row_tile + 1) * depth;
                for task in job.tasks_of(at) {
                    // The tile begins here; its rows end where the columns do.
                    let tile = &memory[task.c as usize..];
                    let to = Destination {
                        rows: &mut *rows,
                        stride: n,
                        columns: task.n.clone(),
                    };
                    unpack::<T>(tile, a.padded, first_row, mode, to, |row, columns, part| {
                        if last {
                            finish_row(first_of_chunk + row, columns, part);
                        }
                    });
                }
            }
        };
        out[band.rows.start * n..band.rows.end * n]
            .par_chunks_mut(band.row_tile * n)
            .enumerate()
            .for_each(|(row_tile, rows)| {
                rows.par_chunks_mut(ROWS * n)
                    .enumerate()
                    .for_each(|(chunk, rows)| unpack_rows(row_tile, chunk, rows));
            });
    }
}
