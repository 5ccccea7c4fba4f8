// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a plan, with every offset worked out.

use std::ops::Range;
use std::sync::Arc;

use super::product::Plan;
use super::step::{ActivationTile, Band, JobPlan, Step, TaskPlan};
use super::tiles::to_u32;
use crate::dtype::ROW_MULTIPLE;
use crate::layout;

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
        let bands = self.m.div_ceil(self.row_tile);
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
        let start = band * self.row_tile;
        let rows = start..(start + self.row_tile).min(self.m);
        let padded = rows.len().next_multiple_of(ROW_MULTIPLE);
        let first = depth * self.k_tiles_per_job;
        let end = (first + self.k_tiles_per_job).min(self.weights.k_tile_count());
        let k_tiles: Vec<_> = (first..end).map(|i| self.weights.k_tile(i)).collect();

        let mut activation_bytes = 0;
        let activations = k_tiles.iter().map(|k_tile| {
            let offset = activation_bytes;
            activation_bytes += layout::activation_bytes(self.weights.dtype, padded, k_tile.padded);
            ActivationTile {
                rows: rows.clone(),
                padded,
                k_tile: k_tile.clone(),
                offset,
            }
        });
        let activations = activations.collect();
        Arc::new(Band {
            rows,
            k_tiles,
            activations,
            activation_bytes,
        })
    }

    fn job(&self, pass: &Pass, band: &Arc<Band>) -> JobPlan {
        let dtype = self.weights.dtype;
        let block = &self.weights.blocks[pass.block];
        let mut tasks = Vec::new();
        let mut output_bytes = 0;
        let n_tiles = pass.n.len().div_ceil(self.n_tile);
        for index in 0..band.activations.len() * n_tiles {
            let (activation, n_tile) = (index / n_tiles, index % n_tiles);
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
            tasks,
            output_bytes,
        }
    }
}
