// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes a job on the CPU, from the NPU's weights. Integers are exact, so the results are those of
//! the NPU.

use std::collections::TryReserveError;

use npu_kernels::multiply::{KernelGroups, multiply};
use rayon::prelude::*;
use rocket_uapi::Deadline;
use zerocopy::IntoBytes;

use super::checked_call::{CheckedCall, Epilogue};
use crate::device::times::{Section, SectionTimes};
use crate::engine::activations::QuantisedRows;
use crate::matrix::MatrixView;
use crate::numbers::dtype::Dtype;
use crate::numbers::layout;
use crate::numbers::scratch::resize;
use crate::plan::JobPlan;
use crate::plan::error::Error;
use crate::unpack::{Destination, Mode, ROWS, Scales, TileRows, unpack, unpack_dequantised};

/// Rows that a thread computes at a time: with more it reads the weights less often, with fewer the
/// threads end at more even times.
const CHUNK: usize = 2 * ROWS;

impl CheckedCall<'_> {
    /// Computes one job of INT8 weights on the CPU, with the same results. It has all K tiles, and
    /// the rows that it reads are quantised.
    pub(super) fn compute(
        &mut self,
        quantised: &[QuantisedRows<'_>],
        clock: &SectionTimes,
        job: &JobPlan,
    ) -> Result<(), Error> {
        // Plans have such jobs for INT8 only, so this does not happen.
        let other = Error::WrongWeights {
            expected: "int8",
            actual: self.weights.format().name(),
        };
        let Some(a) = self.a.integers(quantised)? else {
            return Err(other);
        };
        let block = &self.weights.blocks[job.block];
        let bo = block.buffer();
        // Nobody writes frozen weights, so this neither waits nor syncs.
        let memory = bo
            .read(Deadline::FOREVER)
            .map_err(Error::on_device(job.device))?;
        let tiles = ComputedTiles {
            a,
            weights: &memory.as_slice_of()[block.range.clone()],
            job,
            n: self.weights.n(),
        };
        match &mut self.epilogue {
            Epilogue::I32(c) => tiles.collect(clock, c, |tile, _, to| {
                unpack::<i32>(tile, Mode::Store, to);
            }),
            Epilogue::Dequantised { c, rows, columns } => {
                let rows = quantised[*rows].scales();
                tiles.collect(clock, c, |tile, first, to| {
                    let rows = &rows[first..];
                    let scales = Scales { rows, columns };
                    unpack_dequantised::<i32>(tile, Mode::Store, scales, to);
                })
            }
            Epilogue::F32(_) => Err(other),
        }
    }
}

/// The output tiles of a job that the CPU computes.
struct ComputedTiles<'a> {
    a: MatrixView<'a, i8>,
    /// The weights of the job's block.
    weights: &'a [i8],
    job: &'a JobPlan,
    /// Columns of C.
    n: usize,
}

impl ComputedTiles<'_> {
    /// Computes a few rows of each tile after another, and calls `collect` with them, the first row
    /// in C, and their place in these rows of C.
    fn collect(
        &self,
        clock: &SectionTimes,
        c: &mut [i32],
        collect: impl Fn(TileRows<'_>, usize, Destination<'_, i32>) + Sync,
    ) -> Result<(), Error> {
        let (n, band) = (self.n, &*self.job.band);
        let rows = band.rows.clone();
        let tiles = self.job.tasks_of(0);
        let start = || (clock.stopwatch(Section::Compute), Vec::new());
        let chunks = c[rows.start * n..rows.end * n].par_chunks_mut(CHUNK * n);
        let computed = chunks
            .enumerate()
            .try_for_each_init(start, |(_, sums), (chunk, c)| {
                let first = rows.start + chunk * CHUNK;
                let a = self
                    .a
                    .block(first..first + c.len() / n, 0..self.a.columns());
                for (at, tile) in tiles.iter().enumerate() {
                    resize(sums, tile.n_padded as usize * a.rows())?;
                    self.sum(at, a, sums);
                    let computed = TileRows {
                        bytes: sums.as_bytes(),
                        rows: a.rows(),
                        first: 0,
                    };
                    let to = Destination {
                        rows: c,
                        stride: n,
                        columns: tile.n.clone(),
                    };
                    collect(computed, first, to);
                }
                Ok::<_, TryReserveError>(())
            });
        Ok(computed?)
    }

    /// Sums all products of rows of A with the channels of tile `at`.
    fn sum(&self, at: usize, a: MatrixView<'_, i8>, sums: &mut [i32]) {
        for (index, k_tile) in self.job.band.k_tiles.iter().enumerate() {
            let Some(task) = self.job.tasks_of(index).get(at) else {
                return;
            };
            let bytes = layout::weight_bytes(Dtype::Int8, task.n_padded as usize, k_tile.padded);
            let weights = &self.weights[task.b as usize..][..bytes];
            let a = a.block(0..a.rows(), k_tile.k.clone());
            let b = KernelGroups {
                weights,
                depth: k_tile.padded,
            };
            let mode = if index == 0 { Mode::Store } else { Mode::Add };
            multiply(a, b, mode, sums);
        }
    }
}
