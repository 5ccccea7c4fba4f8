// SPDX-License-Identifier: MIT OR Apache-2.0
//! AVX2 and FMA.
//!
//! `madd` adds neighbouring products, so that integers run in other lanes
//! than [`super::portable`]'s; their total is the same, being exact: a product
//! of two int8 is at most 2^14, a pair of them 2^15, and the 2^16 elements of
//! the longest row make at most 2^30 in all lanes together.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256d, __m256i, _mm256_add_epi32, _mm256_fmadd_pd, _mm256_madd_epi16, _mm256_setzero_pd,
    _mm256_setzero_si256,
};

use zerocopy::transmute;

use super::{BLOCK, MR, Sums};

/// Rows of `b` in registers: with 3 rows of `a` 12 sums of the 16 registers.
const NR_I16: usize = 4;
/// Likewise where a pair's sums take two registers.
const NR_F64: usize = 2;

/// Whether the host has what this file needs.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

pub(super) fn block_i16(a: [&[i16]; MR], b: &[&[i16]; BLOCK], sums: &mut [[Sums<i32>; BLOCK]; MR]) {
    // SAFETY: only `Vectors::Avx2` comes here, which `Vectors::detect` gives
    // where `available` says that the host has AVX2 and FMA.
    unsafe { block_i16_avx2(a, b, sums) }
}

pub(super) fn block_f64(a: [&[f64]; MR], b: &[&[f64]; BLOCK], sums: &mut [[Sums<f64>; BLOCK]; MR]) {
    // SAFETY: as in `block_i16`.
    unsafe { block_f64_avx2(a, b, sums) }
}

#[target_feature(enable = "avx2,fma")]
fn block_i16_avx2(a: [&[i16]; MR], b: &[&[i16]; BLOCK], sums: &mut [[Sums<i32>; BLOCK]; MR]) {
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
fn block_f64_avx2(a: [&[f64]; MR], b: &[&[f64]; BLOCK], sums: &mut [[Sums<f64>; BLOCK]; MR]) {
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
