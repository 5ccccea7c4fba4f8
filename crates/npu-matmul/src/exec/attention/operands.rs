// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs Q, K and V into the NPU's layouts, on all CPUs.

use half::f16;
use npu_kernels::half::to_f16;
use npu_kernels::quantise::largest_magnitude;
use npu_kernels::transpose::pack_columns;
use rayon::prelude::*;
use zerocopy::IntoBytes;

use super::finite::LostKeys;
use crate::device::times::{Section, SectionTimes};
use crate::exec::pack_band;
use crate::matrix::MatrixView;
use crate::numbers::layout;
use crate::numbers::pack::{Fp16, pack_weight};
use crate::numbers::scratch::Scratch;
use crate::plan::JobPlan;
use crate::plan::attention::call::AttentionCall;
use crate::plan::attention::plan::{AttentionTile, HALF};
use crate::plan::error::Error;

/// Packs the used blocks of K and V of a tile's KV head, in parallel parts of `memory`. Vectors
/// with a NaN or infinity become zeros and are recorded in `lost`.
pub(super) fn pack_keys_and_values(
    call: &AttentionCall<'_>,
    tile: &AttentionTile,
    used: &[bool],
    lost: &LostKeys,
    clock: &SectionTimes,
    memory: &mut [u8],
) {
    let tiling = &*tile.tiling;
    let (k, v) = (call.k.matrix(tile.kv_head), call.v.matrix(tile.kv_head));
    let parts = tiling.parts.len();
    // K by part, then V; each by block of keys.
    let blocks = (0..=parts).flat_map(|part| (0..tiling.blocks()).map(move |block| (part, block)));
    let mut rest = memory;
    let mut pieces = Vec::with_capacity((parts + 1) * tiling.blocks());
    for (part, block) in blocks {
        let bytes = if part == parts {
            tiling.value_offset(block + 1) - tiling.value_offset(block)
        } else {
            tiling.key_offset(part, block + 1) - tiling.key_offset(part, block)
        };
        let (piece, tail) = rest.split_at_mut(bytes);
        rest = tail;
        if used[block] {
            pieces.push((part, block, piece));
        }
    }
    let watch = || (clock.stopwatch(Section::PackWeights), Vec::new());
    pieces
        .into_par_iter()
        .for_each_init(watch, |(_, copy), (part, block, piece)| {
            let keys = tiling.key_block(block);
            let part = tiling.parts.get(part);
            let first = keys.k.start;
            let vectors = match part {
                Some(part) => k.block(keys.k, part.clone()),
                None => v.block(keys.k, 0..tiling.value_dim),
            };
            let vectors = lost.replace(tile.head(), first, vectors, copy);
            match part {
                Some(_) => pack_weight::<Fp16>(vectors, piece.len() / keys.padded / 2, piece),
                None => {
                    pack_columns(vectors, keys.padded, piece);
                    add_ones(tiling.value_dim, keys.padded, piece);
                }
            }
        });
}

/// Sets every weight of kernel `n` to 1: its result is the sum of the features.
fn add_ones(n: usize, k_padded: usize, tile: &mut [u8]) {
    for k in 0..k_padded {
        let at = layout::weight(HALF, k_padded, n, k).byte;
        tile[at..at + 2].copy_from_slice(&f16::ONE.to_le_bytes());
    }
}

/// Packs the queries of a tile, scaled and rounded to binary16. Each row is multiplied by a power of
/// two, so that its largest element is between 2^7 and 2^8; `factors` gets the inverses, and 1 for
/// padding. A row that is not finite becomes zeros, with a factor of NaN.
pub(super) fn pack_queries(
    call: &AttentionCall<'_>,
    tile: &AttentionTile,
    job: &JobPlan,
    (scratch, factors): (&Scratch<f16>, &mut [f32]),
    clock: &SectionTimes,
    memory: &mut [u8],
) -> Result<(), Error> {
    const PIECE: usize = 64;
    let (m, depth) = (tile.m(), call.q.vector_len());
    let scaling = clock.stopwatch(Section::Pack);
    let mut rows = scratch.take(m * depth)?;
    factors.fill(1.0);
    for ((at, out), factor) in rows.chunks_mut(depth.max(1)).enumerate().zip(factors) {
        let (head, row) = tile.head_and_row(at);
        let (q, scale) = (call.q.vector(head, row), call.scale_of(head));
        let largest = f32::from_bits(largest_magnitude(q)) * scale.abs();
        if !largest.is_finite() {
            out.fill(f16::ZERO);
            *factor = f32::NAN;
            continue;
        }
        let power = power_for(largest);
        *factor = exp2(-power);
        let to_range = exp2(power);
        for (q, out) in q.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
            let mut scaled = [0.0; PIECE];
            for (scaled, q) in scaled.iter_mut().zip(q) {
                *scaled = q * scale * to_range;
            }
            to_f16(&scaled[..q.len()], out.as_mut_bytes());
        }
    }
    drop(scaling);
    if let Some(matrix) = MatrixView::new(&rows, m, depth) {
        pack_band::<Fp16>(matrix, clock, &job.band, memory);
    }
    scratch.put(rows);
    Ok(())
}

/// The power of two that moves a finite magnitude to the range from 2^7 to 2^8, as near as it and
/// its inverse are normal numbers.
fn power_for(magnitude: f32) -> i32 {
    let exponent = (magnitude.to_bits() >> MANTISSA_BITS).cast_signed() - EXPONENT_BIAS;
    if magnitude == 0.0 {
        return 0;
    }
    (7 - exponent).min(EXPONENT_BIAS - 1)
}

/// 2^power, from -126 to 127.
fn exp2(power: i32) -> f32 {
    f32::from_bits((power + EXPONENT_BIAS).cast_unsigned() << MANTISSA_BITS)
}

const MANTISSA_BITS: u32 = 23;
const EXPONENT_BIAS: i32 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_come_into_range() {
        for power in -149..128 {
            for part in [1.0, 1.999] {
                let magnitude = (part * 2_f64.powi(power)) as f32;
                let power = power_for(magnitude);
                assert_eq!(exp2(power) * exp2(-power), 1.0);
                let scaled = magnitude * exp2(power);
                let is_tiny = magnitude < 2_f32.powi(-118);
                assert!(
                    is_tiny && scaled < 256.0 || (128.0..256.0).contains(&scaled),
                    "{magnitude}"
                );
            }
        }
        assert_eq!(power_for(0.0), 0);
    }
}
