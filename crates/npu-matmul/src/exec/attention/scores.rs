// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU's work after the first and the second job of a tile: softmax, and adding up.

use npu_kernels::softmax::{
    Atom, Bias, LANES, ONE, ReadMode, ScoreRows, bias_row, cut_row, exponentials, largest,
    read_scores,
};
use rayon::prelude::*;

use super::finite::sees;
use crate::device::times::{Section, SectionTimes};
use crate::plan::JobPlan;
use crate::plan::attention::call::AttentionCall;
use crate::plan::attention::mask::Treatment;
use crate::plan::attention::plan::AttentionTile;
use crate::plan::attention::state::AttentionState;
use crate::plan::error::Error;
use crate::unpack::{Destination, Mode, ROWS, TileRows, unpack};

/// Rows that one thread processes at a time. With 2048 keys their scores take 128 KiB, a quarter of
/// a Cortex-A76's second-level cache.
const BAND: usize = 16;

/// Scores between the end of a row and the start of the next, so that the rows do not share the same
/// sets of a cache.
const GAP: usize = 16;

/// Largest magnitude of a row's maximum. Beyond it a step of binary32 is larger than 2^-9, and the
/// softmax of ggml's CPU backend is not exact either.
const LARGEST_SCORE: f32 = 32_768.0;

/// Writes the probabilities of a tile, times [`ONE`], without dividing by their sums. `factors` has
/// the factors of the rows' scores, and gets their maxima.
pub(super) fn softmax(
    call: &AttentionCall<'_>,
    tile: &AttentionTile,
    job: &JobPlan,
    state: &AttentionState,
    clock: &SectionTimes,
    (scores, probabilities): (&[u8], &mut [u8]),
    factors: &mut [f32],
) -> Result<(), Error> {
    let rows = tile.m_padded();
    let (scores, _) = scores[..job.output_bytes].as_chunks();
    let parts = job.band.k_tiles.len().max(1);
    let part = scores.len() / parts;
    let bands = bands(probabilities.as_chunks_mut().0, rows);
    let out_of_range = bands
        .into_par_iter()
        .zip(factors.par_chunks_mut(BAND))
        .enumerate()
        .map(|(band, (surfaces, factors))| {
            let _unpacking = clock.stopwatch(Section::Unpack);
            let first = band * BAND;
            let stride = surfaces.len() * LANES + GAP;
            let mut floats = state.floats.take(factors.len() * stride)?;
            for (at, surfaces) in scores.chunks(part.max(1)).enumerate() {
                let from = ScoreRows {
                    surfaces,
                    rows,
                    first,
                };
                let mode = if at == 0 {
                    ReadMode::Store
                } else {
                    ReadMode::Add
                };
                read_scores(from, mode, factors, &mut floats, stride);
            }
            let out_of_range = finish_scores(call, tile, first, &mut floats, stride, factors);
            if out_of_range.is_none() {
                write_exponentials(&floats, stride, factors, surfaces);
            }
            state.floats.put(floats);
            Ok(out_of_range)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    match out_of_range.into_iter().flatten().next() {
        None => Ok(()),
        Some(maximum) => Err(Error::AttentionOutOfRange {
            maximum,
            limit: LARGEST_SCORE,
        }),
    }
}

/// The surfaces of each band of rows of a tile.
fn bands(tile: &mut [Atom], rows: usize) -> Vec<Vec<&mut [Atom]>> {
    let surfaces = tile.len() / rows.max(1);
    let mut bands: Vec<_> = (0..rows.div_ceil(BAND))
        .map(|_| Vec::with_capacity(surfaces))
        .collect();
    for surface in tile.chunks_exact_mut(rows.max(1)) {
        for (band, part) in bands.iter_mut().zip(surface.chunks_mut(BAND)) {
            band.push(part);
        }
    }
    bands
}

/// Applies masks and caps to rows of scores from row `first` of the tile on, and finds their maxima.
/// Returns a maximum that is out of range, if there is one.
fn finish_scores(
    call: &AttentionCall<'_>,
    tile: &AttentionTile,
    first: usize,
    scores: &mut [f32],
    stride: usize,
    maxima: &mut [f32],
) -> Option<f32> {
    let mut out_of_range = None;
    for (at, (scores, maximum)) in scores.chunks_mut(stride).zip(maxima).enumerate() {
        let scores = &mut scores[..stride - GAP];
        *maximum = f32::NEG_INFINITY;
        if first + at < tile.m() {
            treat(call, tile, first + at, scores);
            *maximum = largest(scores);
        } else {
            scores.fill(f32::NEG_INFINITY);
        }
        let is_exact = (-LARGEST_SCORE..=LARGEST_SCORE).contains(maximum);
        if !is_exact && *maximum != f32::NEG_INFINITY {
            out_of_range = Some(*maximum);
        }
    }
    out_of_range
}

/// Applies masks and caps to the scores of a row of the tile, in the blocks of keys that need it.
fn treat(call: &AttentionCall<'_>, tile: &AttentionTile, row_of_tile: usize, scores: &mut [f32]) {
    let (head, row) = tile.head_and_row(row_of_tile);
    let mask = call.mask.map(|mask| mask.vector(head % mask.heads(), row));
    let mut rest = scores;
    for visible in &tile.blocks {
        let block = tile.tiling.key_block(visible.block);
        let (scores, tail) = rest.split_at_mut(block.padded);
        rest = tail;
        let (scores, padding) = scores.split_at_mut(block.k.len());
        padding.fill(f32::NEG_INFINITY);
        let mask = mask.map(|mask| &mask[block.k]);
        match (visible.treatment, mask) {
            (Treatment::Nothing, _) => {}
            (Treatment::Cut, mask) => cut_row(scores, mask.unwrap_or_default()),
            (Treatment::Bias, mask) => {
                let bias = Bias {
                    softcap: call.softcap,
                    slope: call.slopes.map_or(1.0, |slopes| slopes[head]),
                };
                bias_row(scores, mask, bias);
            }
        }
    }
}

/// Writes the probabilities of rows with these maxima.
fn write_exponentials(
    scores: &[f32],
    stride: usize,
    maxima: &[f32],
    mut surfaces: Vec<&mut [Atom]>,
) {
    // A row that sees no key has no maximum, and any offset gives zeros.
    let mut finite = [0.0; BAND];
    for (finite, maximum) in finite.iter_mut().zip(maxima) {
        *finite = maximum.max(f32::MIN);
    }
    exponentials(scores, stride, &finite[..maxima.len()], &mut surfaces);
}

/// Adds up the results of the blocks of keys, divides them by the sums and stores them. Rows that
/// see a key of `lost` get NaN.
pub(super) fn collect(
    call: &mut AttentionCall<'_>,
    tile: &AttentionTile,
    job: &JobPlan,
    (maxima, lost): (&[f32], &[usize]),
    clock: &SectionTimes,
    memory: &[u8],
) {
    let (heads, dim) = (tile.heads.len(), call.v.vector_len());
    let columns = dim + 1;
    let out_row = call.q.heads() * dim;
    let rows_at_once = ROWS.div_ceil(heads);
    let (sinks, mask) = (call.sinks, call.mask);
    let out = &mut call.out[tile.rows.start * out_row..tile.rows.end * out_row];
    let start = || (clock.stopwatch(Section::Unpack), Vec::new());
    out.par_chunks_mut(rows_at_once * out_row)
        .enumerate()
        .for_each_init(start, |(_, sums), (chunk, out)| {
            let first = chunk * rows_at_once * heads;
            let rows = out.len() / out_row * heads;
            sums.clear();
            sums.resize(rows * columns, 0.0);
            for task in &job.tasks {
                let bytes = &memory[task.c as usize..];
                let tile = TileRows {
                    bytes,
                    rows: task.m_padded as usize,
                    first,
                };
                let to = Destination {
                    rows: &mut sums[..],
                    stride: columns,
                    columns: task.n.clone(),
                };
                let mode = match task.activation {
                    0 => Mode::Store,
                    _ => Mode::Add,
                };
                unpack::<f32>(tile, mode, to);
            }
            for (at, sums) in sums.chunks(columns).enumerate() {
                let (head, row) = tile.head_and_row(first + at);
                let out = &mut out[at / heads * out_row..][head * dim..][..dim];
                let most = if sees(mask, head, row, lost) {
                    f32::NAN
                } else {
                    maxima[first + at]
                };
                let sink = sinks.map_or(0.0, |sinks| ONE * (sinks[head] - most).exp());
                finish_row(sums, most, sink, out);
            }
        });
}

/// Finishes a row of the result. `sums` holds its sums of values, followed by that of the
/// probabilities.
fn finish_row(sums: &[f32], most: f32, sink: f32, out: &mut [f32]) {
    let (values, sum) = sums.split_at(out.len());
    let sum = sum.first().copied().unwrap_or(0.0) + sink;
    for (out, value) in out.iter_mut().zip(values) {
        *out = match most {
            f32::NEG_INFINITY => 0.0,
            most if most.is_nan() => f32::NAN,
            _ => value / sum,
        };
    }
}
