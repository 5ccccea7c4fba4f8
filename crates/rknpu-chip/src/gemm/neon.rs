// SPDX-License-Identifier: MIT OR Apache-2.0
//! NEON, which is part of AArch64's baseline.
//!
//! Each pair of rows runs in the eight lanes of the definition: two registers
//! of integers, four of floats.

use std::arch::aarch64::{
    float32x4_t, float64x2_t, int16x8_t, int32x4_t, vaddq_f64, vcvt_f64_f32, vcvt_high_f64_f32,
    vfmaq_f32, vfmaq_f64, vget_high_s16, vget_low_f32, vget_low_s16, vmlal_s16, vpaddq_f32,
    vpaddq_f64,
};

use zerocopy::transmute;

use super::{BLOCK, LANE_PRODUCTS, LANES, MR};

/// Rows of `b` in registers: with 3 rows of `a` 24 sums of the 32 registers.
const NR_I16: usize = 4;
/// Likewise, where a pair's lanes take two registers.
const NR_F32: usize = 4;
/// Likewise where a pair's sums take four registers.
const NR_F64: usize = 2;

const _: () = assert!(cfg!(target_feature = "neon"));

pub(super) fn block_i16(
    a: [&[i16]; MR],
    b: &[&[i16]; BLOCK],
    sums: &mut [[[i32; LANES]; BLOCK]; MR],
) {
    // SAFETY: this target has NEON in its baseline, as is asserted above.
    unsafe { block_i16_neon(a, b, sums) }
}

pub(super) fn block_f64(
    a: [&[f64]; MR],
    b: &[&[f64]; BLOCK],
    sums: &mut [[[f64; LANES]; BLOCK]; MR],
) {
    // SAFETY: this target has NEON in its baseline, as is asserted above.
    unsafe { block_f64_neon(a, b, sums) }
}

pub(super) fn block_f32(a: [&[f32]; MR], b: &[&[f32]; BLOCK], sums: &mut [[f64; BLOCK]; MR]) {
    // SAFETY: this target has NEON in its baseline, as is asserted above.
    unsafe { block_f32_neon(a, b, sums) }
}

#[target_feature(enable = "neon")]
fn block_i16_neon(a: [&[i16]; MR], b: &[&[i16]; BLOCK], sums: &mut [[[i32; LANES]; BLOCK]; MR]) {
    let steps = a[0].len() / 8;
    let a = a.map(|row| &row.as_chunks::<8>().0[..steps]);
    for first in (0..BLOCK).step_by(NR_I16) {
        let b: [&[[i16; 8]]; NR_I16] =
            std::array::from_fn(|n| &b[first + n].as_chunks::<8>().0[..steps]);
        let mut running: [[[int32x4_t; 2]; NR_I16]; MR] =
            std::array::from_fn(|m| std::array::from_fn(|n| transmute!(sums[m][first + n])));
        for step in 0..steps {
            let b: [int16x8_t; NR_I16] = std::array::from_fn(|n| transmute!(b[n][step]));
            for m in 0..MR {
                let a: int16x8_t = transmute!(a[m][step]);
                for n in 0..NR_I16 {
                    let [low, high] = running[m][n];
                    running[m][n] = [
                        vmlal_s16(low, vget_low_s16(a), vget_low_s16(b[n])),
                        vmlal_s16(high, vget_high_s16(a), vget_high_s16(b[n])),
                    ];
                }
            }
        }
        for m in 0..MR {
            for n in 0..NR_I16 {
                sums[m][first + n] = transmute!(running[m][n]);
            }
        }
    }
}

#[target_feature(enable = "neon")]
fn block_f64_neon(a: [&[f64]; MR], b: &[&[f64]; BLOCK], sums: &mut [[[f64; LANES]; BLOCK]; MR]) {
    let steps = a[0].len() / 8;
    let a = a.map(|row| &row.as_chunks::<8>().0[..steps]);
    for first in (0..BLOCK).step_by(NR_F64) {
        let b: [&[[f64; 8]]; NR_F64] =
            std::array::from_fn(|n| &b[first + n].as_chunks::<8>().0[..steps]);
        let mut running: [[[float64x2_t; 4]; NR_F64]; MR] =
            std::array::from_fn(|m| std::array::from_fn(|n| transmute!(sums[m][first + n])));
        for step in 0..steps {
            let b: [[float64x2_t; 4]; NR_F64] = std::array::from_fn(|n| transmute!(b[n][step]));
            for m in 0..MR {
                let a: [float64x2_t; 4] = transmute!(a[m][step]);
                for n in 0..NR_F64 {
                    for part in 0..4 {
                        running[m][n][part] = vfmaq_f64(running[m][n][part], a[part], b[n][part]);
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

#[target_feature(enable = "neon")]
fn block_f32_neon(a: [&[f32]; MR], b: &[&[f32]; BLOCK], sums: &mut [[f64; BLOCK]; MR]) {
    let steps = a[0].len() / LANES;
    let a = a.map(|row| &row.as_chunks::<LANES>().0[..steps]);
    for first in (0..BLOCK).step_by(NR_F32) {
        let b: [&[[f32; LANES]]; NR_F32] =
            std::array::from_fn(|n| &b[first + n].as_chunks::<LANES>().0[..steps]);
        for start in (0..steps).step_by(LANE_PRODUCTS) {
            let end = steps.min(start + LANE_PRODUCTS);
            let mut lanes: [[[float32x4_t; 2]; NR_F32]; MR] =
                transmute!([[0f32; LANES * NR_F32]; MR]);
            for step in start..end {
                let b: [[float32x4_t; 2]; NR_F32] = std::array::from_fn(|n| transmute!(b[n][step]));
                for m in 0..MR {
                    let a: [float32x4_t; 2] = transmute!(a[m][step]);
                    for n in 0..NR_F32 {
                        for half in 0..2 {
                            lanes[m][n][half] = vfmaq_f32(lanes[m][n][half], a[half], b[n][half]);
                        }
                    }
                }
            }
            for m in 0..MR {
                for (pair, lanes) in lanes[m].as_chunks::<2>().0.iter().enumerate() {
                    let place = &mut sums[m].as_chunks_mut::<2>().0[first / 2 + pair];
                    let before: float64x2_t = transmute!(*place);
                    *place = transmute!(vaddq_f64(before, segments(*lanes)));
                }
            }
        }
    }
}

/// The sums of two segments, from their lanes.
#[inline]
#[target_feature(enable = "neon")]
fn segments([x, y]: [[float32x4_t; 2]; 2]) -> float64x2_t {
    // Two sums of four lanes of x, then of y.
    let quads = vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(y[0], y[1]));
    vpaddq_f64(vcvt_f64_f32(vget_low_f32(quads)), vcvt_high_f64_f32(quads))
}
