// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU's work after the first and the second job of a tile: softmax, and adding up.

use half::f16;
use npu_kernels::softmax::{
    Atom, Bias, BiasScratch, NO_MAXIMUM, add_scores, bias_row, cut_row, exponentials, maximum,
    offset, take_maxima,
};
use rayon::prelude::*;

use super::call::AttentionCall;
use super::finite::sees;
use super::mask::Treatment;
use super::plan::Tile;
use super::state::AttentionState;
use crate::error::Error;
use crate::plan::JobPlan;
use crate::times::{Section, SectionTimes};
use crate::unpack::{Destination, Mode, ROWS, TileRows, unpack};

/// Surfaces that one thread processes at a time.
const SURFACES: usize = 16;

/// Largest magnitude of a row's maximum. The error of binary16 grows with the scores, and the softmax
/// needs their differences: beyond this the error of a result is larger than the CPU's by orders of
/// magnitude.
const LARGEST_SCORE: f32 = 32.0;

/// Computes the probabilities of a tile in place, without dividing by their sums. Returns the
/// maximum of each row.
pub(super) fn softmax(
    call: &AttentionCall<'_>,
    tile: &Tile,
    job: &JobPlan,
    state: &AttentionState,
    clock: &SectionTimes,
    memory: &mut [u8],
) -> Result<Vec<f32>, Error> {
    let rows = tile.m_padded();
    let (scores, _) = memory.split_at_mut(job.output_bytes);
    let (scores, _) = scores.as_chunks_mut::<{ size_of::<Atom>() }>();
    let parts = job.band.k_tiles.len().max(1);
    let (scores, others) = scores.split_at_mut(scores.len() / parts);
    let watch = || clock.stopwatch(Section::Unpack);
    let chunk = SURFACES * rows;
    for other in others.chunks(scores.len().max(1)) {
        let parts = scores.par_chunks_mut(chunk).zip(other.par_chunks(chunk));
        parts.for_each_init(watch, |_, (scores, other)| add_scores(scores, other));
    }
    treat(call, tile, clock, scores);

    let chunks = scores.len().div_ceil(chunk);
    let mut maxima = state.maxima.take(chunks * rows)?;
    scores
        .par_chunks(chunk)
        .zip(maxima.par_chunks_mut(rows))
        .for_each_init(watch, |_, (scores, maxima)| {
            maxima.fill(NO_MAXIMUM);
            take_maxima(scores, maxima);
        });
    let (first, others) = maxima.split_at_mut(rows);
    for other in others.chunks(rows) {
        for (most, other) in first.iter_mut().zip(other) {
            for (most, other) in most.iter_mut().zip(other) {
                *most = (*most).max(*other);
            }
        }
    }
    let mut of_rows = state.floats.take(rows)?;
    let mut offsets = state.floats.take(rows)?;
    let mut out_of_range = None;
    for ((of_row, add), most) in of_rows.iter_mut().zip(&mut offsets).zip(first) {
        let most: f16 = maximum(most);
        (*of_row, *add) = (most.to_f32(), offset(most));
        let is_exact = most == f16::NEG_INFINITY || of_row.abs() <= LARGEST_SCORE;
        out_of_range = out_of_range.or((!is_exact).then_some(*of_row));
    }
    if let Some(maximum) = out_of_range {
        return Err(Error::AttentionOutOfRange {
            maximum,
            limit: LARGEST_SCORE,
        });
    }
    scores
        .par_chunks_mut(chunk)
        .for_each_init(watch, |_, scores| exponentials(scores, &offsets));
    state.maxima.put(maxima);
    state.floats.put(offsets);
    Ok(of_rows)
}

/// Applies masks and caps to the blocks of keys that need it.
fn treat(call: &AttentionCall<'_>, tile: &Tile, clock: &SectionTimes, scores: &mut [Atom]) {
    let (tiling, rows) = (&*tile.tiling, tile.m_padded());
    let mut rest = scores;
    let mut treated = Vec::new();
    for visible in &tile.blocks {
        let keys = tiling.key_block(visible.block);
        let (block, behind) = rest.split_at_mut(keys.padded / 8 * rows);
        rest = behind;
        if visible.treatment != Treatment::Nothing {
            treated.push((visible.treatment, keys.k, block));
        }
    }
    let watch = || (clock.stopwatch(Section::Unpack), BiasScratch::default());
    treated
        .into_par_iter()
        .for_each_init(watch, |(_, scratch), (treatment, keys, block)| {
            for at in 0..tile.m() {
                let (head, row) = tile.head_and_row(at);
                let mask = call
                    .mask
                    .map(|mask| &mask.vector(head % mask.heads(), row)[keys.clone()]);
                match (treatment, mask) {
                    (Treatment::Cut, Some(mask)) => cut_row(block, rows, at, mask),
                    _ => {
                        let bias = Bias {
                            softcap: call.softcap,
                            slope: call.slopes.map_or(1.0, |slopes| slopes[head]),
                        };
                        bias_row(block, [rows, at], keys.len(), mask, bias, scratch);
                    }
                }
            }
        });
}

/// Adds up the results of the blocks of keys, divides them by the sums and stores them. Rows that
/// see a key of `lost` get NaN.
pub(super) fn collect(
    call: &mut AttentionCall<'_>,
    tile: &Tile,
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
                let sink = sinks.map_or(0.0, |sinks| (sinks[head] - most).exp());
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
