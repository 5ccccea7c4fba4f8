// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs Q, K and V into the NPU's layouts, on all CPUs.

use half::f16;
use npu_kernels::half::to_f16;
use npu_kernels::transpose::pack_columns;
use rayon::prelude::*;
use zerocopy::IntoBytes;

use super::call::AttentionCall;
use super::finite::LostKeys;
use super::plan::{HALF, Tile};
use crate::error::Error;
use crate::exec::pack_band;
use crate::layout;
use crate::matrix::MatrixView;
use crate::pack::{Fp16, pack_weight};
use crate::plan::JobPlan;
use crate::scratch::Scratch;
use crate::times::{Section, SectionTimes};

/// Packs the used blocks of K and V of a tile's KV head, in parallel parts of `memory`. Vectors
/// with a NaN or infinity become zeros and are recorded in `lost`.
pub(super) fn pack_keys_and_values(
    call: &AttentionCall<'_>,
    tile: &Tile,
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
        let (piece, behind) = rest.split_at_mut(bytes);
        rest = behind;
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

/// Packs the queries of a tile, scaled and rounded to binary16. Values out of range become the
/// largest finite number.
pub(super) fn pack_queries(
    call: &AttentionCall<'_>,
    tile: &Tile,
    job: &JobPlan,
    scratch: &Scratch<f16>,
    clock: &SectionTimes,
    memory: &mut [u8],
) -> Result<(), Error> {
    const PIECE: usize = 64;
    let (m, depth) = (tile.m(), call.q.vector_len());
    let most = f16::MAX.to_f32();
    let scaling = clock.stopwatch(Section::Pack);
    let mut rows = scratch.take(m * depth)?;
    for (at, out) in rows.chunks_mut(depth.max(1)).enumerate() {
        let (head, row) = tile.head_and_row(at);
        let q = call.q.vector(head, row);
        for (q, out) in q.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
            let mut scaled = [0.0; PIECE];
            for (scaled, q) in scaled.iter_mut().zip(q) {
                *scaled = (q * call.scale).clamp(-most, most);
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
