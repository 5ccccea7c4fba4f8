// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrices to buffers, and buffers to matrices, on all CPUs.

use rayon::prelude::*;

use super::Product;
use super::collect::{Collect, OutputTile};
use crate::layout;
use crate::pack::{Format, pack_activation};
use crate::plan::{Band, JobPlan};
use crate::unpack::{Partial, ROWS};

impl<F: Format, C: Collect> Product<'_, F, C> {
    /// Rows of the plan, and so of tiles, for each row of the result.
    const TIMES: usize = C::Partial::TILE_ROWS;

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
        let a = self.a.repeated(Self::TIMES);
        tiles.into_par_iter().for_each(|(tile, memory)| {
            let block = a.block(tile.rows.clone(), tile.k_tile.k.clone());
            pack_activation::<F>(block, tile.padded, memory);
        });
    }

    /// Collects the tiles of C of one job into rows of `out`.
    pub(super) fn unpack(&self, job: &JobPlan, memory: &[u8], out: &mut [C::Out]) {
        let n = self.weights.n();
        let band = &*job.band;
        let depth = band.k_tiles.len();
        // Tiles have a multiple of four rows and begin at one, and the plan a
        // multiple of TIMES: all of these divide.
        let rows = band.rows.start / Self::TIMES..band.rows.end / Self::TIMES;
        let row_tile_rows = band.row_tile / Self::TIMES;
        let complete =
            band.k_tiles.last().map(|k| k.index + 1) == Some(self.plan.weights.k_tile_count());
        let collect_rows = |row_tile: usize, chunk: usize, out: &mut [C::Out]| {
            let first_row = chunk * ROWS;
            for at in row_tile * depth..(row_tile + 1) * depth {
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
                        completes: complete && at + 1 == (row_tile + 1) * depth,
                    };
                    self.collect.collect(&tile, out, n);
                }
            }
        };
        out[rows.start * n..rows.end * n]
            .par_chunks_mut(row_tile_rows * n)
            .enumerate()
            .for_each(|(row_tile, out)| {
                out.par_chunks_mut(ROWS * n)
                    .enumerate()
                    .for_each(|(chunk, out)| collect_rows(row_tile, chunk, out));
            });
    }
}
