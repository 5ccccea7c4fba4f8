// SPDX-License-Identifier: MIT OR Apache-2.0
//! AVX2 and FMA.
//!
//! `madd` adds neighbouring products, so that integers run in other lanes
//! than the definition's; their total is the same, being exact: a product
//! of two int8 is at most 2^14, a pair of them 2^15, and the 2^16 elements of
//! the longest row make at most 2^30 in all lanes together.

use std::arch::x86_64::{
    __m256, __m256d, __m256i, _mm256_add_epi32, _mm256_add_pd, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_cvtps_pd, _mm256_extractf128_ps, _mm256_fmadd_pd,
    _mm256_fmadd_ps, _mm256_madd_epi16, _mm256_setzero_pd, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_shuffle_ps,
};

use zerocopy::transmute;

use super::super::vectors::Avx2;
use super::{BLOCK, LANE_PRODUCTS, LANES, MR};

/// Rows of `b` in registers: with 3 rows of `a` 12 sums of the 16 registers.
const NR_I16: usize = 4;
/// Likewise, and as many as a register has float64.
const NR_F32: usize = 4;
/// Likewise where a pair's sums take two registers.
const NR_F64: usize = 2;

pub(super) fn block_i16(
    _: Avx2,
    a: [&[i16]; MR],
    b: &[&[i16]; BLOCK],
    sums: &mut [[[i32; LANES]; BLOCK]; MR],
) {
    // SAFETY: an `Avx2` is made only where the host has AVX2 and FMA.
    unsafe { block_i16_avx2(a, b, sums) }
}

pub(super) fn block_f64(
    _: Avx2,
    a: [&[f64]; MR],
    b: &[&[f64]; BLOCK],
    sums: &mut [[[f64; LANES]; BLOCK]; MR],
) {
    // SAFETY: as in `block_i16`.
    unsafe { block_f64_avx2(a, b, sums) }
}

pub(super) fn block_f32(
    _: Avx2,
    a: [&[f32]; MR],
    b: &[&[f32]; BLOCK],
    sums: &mut [[f64; BLOCK]; MR],
) {
    // SAFETY: as in `block_i16`.
    unsafe { block_f32_avx2(a, b, sums) }
}

#[target_feature(enable = "avx2,fma")]
fn block_i16_avx2(a: [&[i16]; MR], b: &[&[i16]; BLOCK], sums: &mut [[[i32; LANES]; BLOCK]; MR]) {
    let steps = a[0].len() / 16;
    let a = a.map(|row| &row.as_chunks::<16>().0[..steps]);
    for first in (0..BLOCK).step_by(NR_I16) {
        let mut rows: [&[[i16; 16]]; NR_I16] = [&[]; NR_I16];
        for n in 0..NR_I16 {
            rows[n] = &b[first + n].as_chunks::<16>().0[..steps];
        }
        let b = rows;
        let mut running = [[_mm256_setzero_si256(); NR_I16]; MR];
        for step in 0..steps {
            let [a0, a1, a2] = a;
            let a: [__m256i; MR] = [
                transmute!(a0[step]),
                transmute!(a1[step]),
                transmute!(a2[step]),
            ];
            for n in 0..NR_I16 {
                let b: __m256i = transmute!(b[n][step]);
                for m in 0..MR {
                    running[m][n] = _mm256_add_epi32(running[m][n], _mm256_madd_epi16(a[m], b));
                }
            }
        }
        for m in 0..MR {
            for n in 0..NR_I16 {
                let before: __m256i = transmute!(sums[m][first + n]);
                sums[m][first + n] = transmute!(_mm256_add_epi32(before, running[m][n]));
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn block_f64_avx2(a: [&[f64]; MR], b: &[&[f64]; BLOCK], sums: &mut [[[f64; LANES]; BLOCK]; MR]) {
    let steps = a[0].len() / 8;
    let a = a.map(|row| &row.as_chunks::<8>().0[..steps]);
    for first in (0..BLOCK).step_by(NR_F64) {
        let mut rows: [&[[f64; 8]]; NR_F64] = [&[]; NR_F64];
        for n in 0..NR_F64 {
            rows[n] = &b[first + n].as_chunks::<8>().0[..steps];
        }
        let b = rows;
        let mut running: [[[__m256d; 2]; NR_F64]; MR] = [[[_mm256_setzero_pd(); 2]; NR_F64]; MR];
        for m in 0..MR {
            for n in 0..NR_F64 {
                running[m][n] = transmute!(sums[m][first + n]);
            }
        }
        for step in 0..steps {
            let b: [[__m256d; 2]; NR_F64] = [transmute!(b[0][step]), transmute!(b[1][step])];
            for m in 0..MR {
                let a: [__m256d; 2] = transmute!(a[m][step]);
                for n in 0..NR_F64 {
                    for half in 0..2 {
                        running[m][n][half] =
                            _mm256_fmadd_pd(a[half], b[n][half], running[m][n][half]);
                    }
                }
            }
        }
        for m in 0..MR {
            for n in 0..NR_F64 {
                sums[m][first + n] = transmute!(running[m][n]);
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn block_f32_avx2(a: [&[f32]; MR], b: &[&[f32]; BLOCK], sums: &mut [[f64; BLOCK]; MR]) {
    let steps = a[0].len() / LANES;
    let a = a.map(|row| &row.as_chunks::<LANES>().0[..steps]);
    for first in (0..BLOCK).step_by(NR_F32) {
        let mut rows: [&[[f32; LANES]]; NR_F32] = [&[]; NR_F32];
        for n in 0..NR_F32 {
            rows[n] = &b[first + n].as_chunks::<LANES>().0[..steps];
        }
        let b = rows;
        let mut totals = [_mm256_setzero_pd(); MR];
        for m in 0..MR {
            let [s0, s1, s2, s3] = sums[m].as_chunks::<NR_F32>().0[first / NR_F32];
            totals[m] = transmute!([s0, s1, s2, s3]);
        }
        for start in (0..steps).step_by(LANE_PRODUCTS) {
            let end = steps.min(start + LANE_PRODUCTS);
            let mut lanes = [[_mm256_setzero_ps(); NR_F32]; MR];
            for step in start..end {
                let [a0, a1, a2] = a;
                let a: [__m256; MR] = [
                    transmute!(a0[step]),
                    transmute!(a1[step]),
                    transmute!(a2[step]),
                ];
                for n in 0..NR_F32 {
                    let b: __m256 = transmute!(b[n][step]);
                    for m in 0..MR {
                        lanes[m][n] = _mm256_fmadd_ps(a[m], b, lanes[m][n]);
                    }
                }
            }
            for m in 0..MR {
                totals[m] = _mm256_add_pd(totals[m], segments(lanes[m]));
            }
        }
        for m in 0..MR {
            let part = &mut sums[m].as_chunks_mut::<NR_F32>().0[first / NR_F32];
            *part = transmute!(totals[m]);
        }
    }
}

/// The sums of four segments, from their lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn segments([w, x, y, z]: [__m256; NR_F32]) -> __m256d {
    // In each half a pair of w, another of w, two of x; two of y, two of z.
    let wx = neighbours(w, x);
    let yz = neighbours(y, z);
    // In each half one sum of four lanes of w, x, y and z.
    let quads = neighbours(wx, yz);
    _mm256_add_pd(
        _mm256_cvtps_pd(_mm256_castps256_ps128(quads)),
        _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(quads)),
    )
}

/// The sums of neighbours: in each half two of `x`, then two of `y`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn neighbours(x: __m256, y: __m256) -> __m256 {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    _mm256_add_ps(
        _mm256_shuffle_ps::<EVEN>(x, y),
        _mm256_shuffle_ps::<ODD>(x, y),
    )
}
