// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exponentials of eight keys in two NEON registers.

use std::arch::aarch64::{
    float16x8_t, float32x4_t, uint16x8_t, vaddq_f32, vaddq_u32, vcvt_f16_f32, vcvt_f32_f16,
    vcvt_high_f16_f32, vcvt_high_f32_f16, vdupq_n_f32, vfmaq_f32, vget_low_f16, vmaxnmq_f32,
    vminq_f32, vreinterpretq_f16_u16, vreinterpretq_f32_u32, vreinterpretq_u16_f16,
    vreinterpretq_u32_f32, vshlq_n_u32, vsubq_f32,
};

use zerocopy::transmute;

use super::powers::{Atom, EXPONENT_MIN, POWERS, ROUND};

#[target_feature(enable = "neon")]
pub(super) fn exponentials(surfaces: &mut [Atom], offsets: &[f32]) {
    for surface in surfaces.chunks_exact_mut(offsets.len().max(1)) {
        for (atom, &offset) in surface.iter_mut().zip(offsets) {
            let bits: uint16x8_t = transmute!(*atom);
            let scores: float16x8_t = vreinterpretq_f16_u16(bits);
            let offset = vdupq_n_f32(offset);
            let low = exponential(vcvt_f32_f16(vget_low_f16(scores)), offset);
            let high = exponential(vcvt_high_f32_f16(scores), offset);
            let halves = vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
            *atom = transmute!(halves);
        }
    }
}

#[target_feature(enable = "neon")]
fn exponential(score: float32x4_t, offset: float32x4_t) -> float32x4_t {
    let round = vdupq_n_f32(ROUND);
    let [c1, c2, c3] = POWERS.map(|c| vdupq_n_f32(c));
    let y = vfmaq_f32(offset, score, vdupq_n_f32(std::f32::consts::LOG2_E));
    // `vmaxnmq` returns the other operand for a NaN.
    let y = vminq_f32(vmaxnmq_f32(y, vdupq_n_f32(EXPONENT_MIN)), vdupq_n_f32(0.0));
    let rounded = vaddq_f32(y, round);
    let f = vsubq_f32(y, vsubq_f32(rounded, round));
    let power = vfmaq_f32(c1, vfmaq_f32(c2, c3, f), f);
    let power = vreinterpretq_u32_f32(vfmaq_f32(vdupq_n_f32(1.0), power, f));
    let exponent = vshlq_n_u32::<23>(vreinterpretq_u32_f32(rounded));
    vreinterpretq_f32_u32(vaddq_u32(power, exponent))
}
