// SPDX-License-Identifier: MIT OR Apache-2.0
//! One matmul: packs its matrices into buffers and unpacks results, on all CPUs.

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rayon::prelude::*;

use crate::device::times::{Section, SectionTimes};
use crate::engine::activations::QuantisedRows;
use crate::engine::packed::PackedWeights;
use crate::matrix::MatrixView;
use crate::numbers::dtype::Dtype;
use crate::numbers::layout;
use crate::numbers::pack::{Format, Fp16, Int4, Int8, pack_activation};
use crate::plan::error::Error;
use crate::plan::kept_plan::KeptPlan;
use crate::plan::weight_format::WeightFormat;
use crate::plan::{Band, JobPlan};
use crate::unpack::{
    Destination, Mode, Partial, ROWS, Scales, TileRows, unpack, unpack_dequantised,
};

/// A matmul with checked operands.
pub(crate) struct CheckedCall<'a> {
    pub(crate) weights: &'a PackedWeights,
    pub(crate) prepared: Arc<KeptPlan>,
    pub(crate) a: EncodedRows<'a>,
    pub(crate) epilogue: Epilogue<'a>,
}

/// A in host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand<'a> {
    Integers(MatrixView<'a, i8>),
    Halves(MatrixView<'a, f16>),
    /// Index into the run's quantised rows.
    Quantised(usize),
}

/// The conversion of the NPU's sums, and C, which has as many rows as A.
pub(crate) enum Epilogue<'a> {
    /// Integers, unchanged.
    I32(&'a mut [i32]),
    /// Floats, unchanged.
    F32(&'a mut [f32]),
    /// Integers that are added up in the memory of C, then scaled to floats.
    Dequantised {
        c: &'a mut [i32],
        /// Index into the run's quantised rows, which have the scales of rows.
        rows: usize,
        columns: &'a [f32],
    },
}

/// A and its encoding in device memory. Matmuls for which it is the same pack the same bytes for
/// the same tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedRows<'a> {
    pub(crate) rows: Operand<'a>,
    /// Format of the weights, which determines the encoding.
    pub(crate) format: WeightFormat,
}

impl PartialEq for EncodedRows<'_> {
    /// Compares places. The caller keeps all matrices borrowed during the run, so a place has one
    /// content.
    fn eq(&self, other: &Self) -> bool {
        let Self { rows, format } = *self;
        let are_same = match (rows, other.rows) {
            (Operand::Integers(one), Operand::Integers(other)) => one.is(&other),
            (Operand::Halves(one), Operand::Halves(other)) => one.is(&other),
            (Operand::Quantised(one), Operand::Quantised(other)) => one == other,
            (Operand::Integers(_) | Operand::Halves(_) | Operand::Quantised(_), _) => false,
        };
        are_same && format == other.format
    }
}

/// Some rows of an output tile.
struct OutputTile<'a> {
    rows: TileRows<'a>,
    /// The first row in C.
    row: usize,
    /// Columns of C.
    columns: Range<usize>,
    /// Index of the K tile.
    k_tile: usize,
    /// Whether this is the last K tile.
    completes: bool,
}

impl OutputTile<'_> {
    /// The first K tile stores; the others add.
    const fn mode(&self) -> Mode {
        if self.k_tile == 0 {
            Mode::Store
        } else {
            Mode::Add
        }
    }

    /// The tile's columns in these rows of C.
    fn to<'r, S>(&self, rows: &'r mut [S], stride: usize) -> Destination<'r, S> {
        Destination {
            rows,
            stride,
            columns: self.columns.clone(),
        }
    }
}

impl EncodedRows<'_> {
    /// The integers, if the rows are packed as such.
    pub(super) fn integers<'q>(
        &'q self,
        quantised: &'q [QuantisedRows<'_>],
    ) -> Result<Option<MatrixView<'q, i8>>, Error> {
        Ok(match self.rows {
            Operand::Integers(a) => Some(a),
            Operand::Quantised(at) => Some(quantised[at].integers()?),
            Operand::Halves(_) => None,
        })
    }

    /// Packs the tiles of A into the activation buffer. The band's rows are quantised.
    pub(super) fn pack(
        &self,
        quantised: &[QuantisedRows<'_>],
        clock: &SectionTimes,
        band: &Band,
        memory: &mut [u8],
    ) -> Result<(), Error> {
        match (self.rows, self.format.dtype()) {
            (Operand::Halves(a), _) => pack_band::<Fp16>(a, clock, band, memory),
            (Operand::Integers(a), Dtype::Int4) => pack_band::<Int4>(a, clock, band, memory),
            (Operand::Integers(a), _) => pack_band::<Int8>(a, clock, band, memory),
            (Operand::Quantised(at), _) => {
                pack_band::<Int8>(quantised[at].integers()?, clock, band, memory);
            }
        }
        Ok(())
    }
}

impl CheckedCall<'_> {
    /// Multiply-accumulates, without padding.
    pub(super) fn macs(&self) -> u64 {
        self.prepared.plan.m as u64 * self.weights.k() as u64 * self.weights.n() as u64
    }

    /// Collects the tiles of C of one job. Different K tiles of an element arrive in order.
    pub(super) fn unpack(
        &mut self,
        quantised: &[QuantisedRows<'_>],
        clock: &SectionTimes,
        job: &JobPlan,
        memory: &[u8],
    ) {
        let n = self.weights.n();
        let k_tiles = self.weights.plan().k_tile_count();
        let each = OutputTiles {
            clock,
            job,
            memory,
            n,
            completes: job.band.k_tiles.last().map(|a| a.index + 1) == Some(k_tiles),
        };
        match &mut self.epilogue {
            Epilogue::I32(c) => match self.weights.dtype() {
                Dtype::Int4 => each.add_up::<i16>(c),
                Dtype::Int8 | Dtype::Fp16 => each.add_up::<i32>(c),
            },
            Epilogue::F32(c) => each.add_up::<f32>(c),
            Epilogue::Dequantised { c, rows, columns } => each.collect(c, |tile, c| {
                if !tile.completes {
                    return unpack::<i32>(tile.rows, tile.mode(), tile.to(c, n));
                }
                let scales = Scales {
                    rows: &quantised[*rows].scales()[tile.row..],
                    columns,
                };
                unpack_dequantised::<i32>(tile.rows, tile.mode(), scales, tile.to(c, n));
            }),
        }
    }
}

/// Packs the tiles of a band of A, in parallel.
pub(crate) fn pack_band<F: Format>(
    a: MatrixView<'_, F::Host>,
    clock: &SectionTimes,
    band: &Band,
    memory: &mut [u8],
) {
    let mut rest = memory;
    let mut tiles = Vec::with_capacity(band.k_tiles.len());
    for tile in &band.k_tiles {
        let bytes = layout::activation_bytes(F::DTYPE, band.padded, tile.padded);
        let (memory, tail) = rest.split_at_mut(bytes);
        tiles.push((tile, memory));
        rest = tail;
    }
    let watch = || clock.stopwatch(Section::Pack);
    tiles
        .into_par_iter()
        .for_each_init(watch, |_, (tile, memory)| {
            let block = a.block(band.rows.clone(), tile.k.clone());
            pack_activation::<F>(block, band.padded, memory);
        });
}

/// The output tiles of a job.
struct OutputTiles<'a> {
    clock: &'a SectionTimes,
    job: &'a JobPlan,
    memory: &'a [u8],
    /// Columns of C.
    n: usize,
    /// Whether the job's last K tile is the last of the matmul.
    completes: bool,
}

impl OutputTiles<'_> {
    /// Calls `collect` with parts of each tile, and their rows of C.
    fn collect<S: Send>(&self, c: &mut [S], collect: impl Fn(&OutputTile<'_>, &mut [S]) + Sync) {
        let (n, band) = (self.n, &*self.job.band);
        let rows = band.rows.clone();
        let collect_rows = |chunk: usize, c: &mut [S]| {
            let first_row = chunk * ROWS;
            for (at, a) in band.k_tiles.iter().enumerate() {
                for task in self.job.tasks_of(at) {
                    let tile = OutputTile {
                        rows: TileRows {
                            // The tile begins here; its length follows from the columns.
                            bytes: &self.memory[task.c as usize..],
                            rows: band.padded,
                            first: first_row,
                        },
                        row: rows.start + first_row,
                        columns: task.n.clone(),
                        k_tile: a.index,
                        completes: self.completes && at + 1 == band.k_tiles.len(),
                    };
                    collect(&tile, c);
                }
            }
        };
        let watch = || self.clock.stopwatch(Section::Unpack);
        c[rows.start * n..rows.end * n]
            .par_chunks_mut(ROWS * n)
            .enumerate()
            .for_each_init(watch, |_, (chunk, c)| collect_rows(chunk, c));
    }

    /// Stores the results of the first K tile, and adds those of the others.
    fn add_up<T: Partial<Sum: Send>>(&self, sums: &mut [T::Sum]) {
        self.collect(sums, |tile, sums| {
            unpack::<T>(tile.rows, tile.mode(), tile.to(sums, self.n));
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::numbers::quantise::Quantisation;

    const FORMATS: [WeightFormat; 4] = [
        WeightFormat::Int8,
        WeightFormat::Int4,
        WeightFormat::Fp16,
        WeightFormat::Quantised(Quantisation::W8A8),
    ];

    proptest! {
        #![proptest_config(test_support::cases(64))]

        /// Encoded rows are the same only if memory, sizes, number type and format are.
        #[test]
        fn rows_differ_in_place_and_format(
            places in [(0..2_usize, 1..3_usize, 1..3_usize), (0..2, 1..3, 1..3)],
            are_halves in [any::<bool>(), any::<bool>()],
            formats in [0..FORMATS.len(), 0..FORMATS.len()],
        ) {
            let (integers, halves) = ([0; 8], [f16::ZERO; 8]);
            let [one, other] = [0, 1].map(|at| {
                let (start, rows, columns) = places[at];
                let part = start..start + rows * columns;
                EncodedRows {
                    rows: if are_halves[at] {
                        Operand::Halves(MatrixView::new(&halves[part], rows, columns).unwrap())
                    } else {
                        Operand::Integers(MatrixView::new(&integers[part], rows, columns).unwrap())
                    },
                    format: FORMATS[formats[at]],
                }
            });
            let is_same = places[0] == places[1]
                && are_halves[0] == are_halves[1]
                && formats[0] == formats[1];
            prop_assert_eq!(one == other, is_same);
        }
    }
}
