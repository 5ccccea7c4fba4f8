// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a plan.

use std::ops::Range;
use std::sync::Arc;

use super::matmul::Plan;
use super::step::{Band, JobPlan, Step};
use super::tasks::TaskList;

/// The channels of a block that one job computes.
struct Pass {
    block: usize,
    n: Range<usize>,
}

impl Plan {
    /// The steps, in the order in which the CPU must add their results: for each part of C, the
    /// first K tiles come first.
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

    /// Band `band` of the rows, with the K tiles of range `depth`.
    fn band(&self, band: usize, depth: usize) -> Arc<Band> {
        let start = band * self.row_tile;
        let rows = start..(start + self.row_tile).min(self.m);
        let first = depth * self.k_tiles_per_job;
        let end = (first + self.k_tiles_per_job).min(self.weights.k_tile_count());
        let k_tiles = (first..end).map(|i| self.weights.k_tile(i)).collect();
        Arc::new(Band::new(self.weights.dtype, rows, k_tiles))
    }

    fn job(&self, pass: &Pass, band: &Arc<Band>) -> JobPlan {
        let block = &self.weights.blocks[pass.block];
        let mut tasks = TaskList::new(self.weights.dtype, self.ty, Arc::clone(band));
        for (activation, a) in band.activations.iter().enumerate() {
            for start in pass.n.clone().step_by(self.n_tile) {
                let n = start..(start + self.n_tile).min(pass.n.end);
                let in_block = start - block.n.start;
                let b = self.weights.weight_offset(block, a.k_tile.index, in_block);
                tasks.push(activation, n, b);
            }
        }
        tasks.job(block.device, pass.block, self.program, pass.n.clone())
    }
}
