// SPDX-License-Identifier: MIT OR Apache-2.0
//! The largest score, and exponentials of eight keys in two NEON registers.

use std::arch::aarch64::{
    float32x4_t, vaddq_f32, vaddq_u32, vcvt_f16_f32, vcvt_high_f16_f32, vdupq_n_f32, vfmaq_f32,
    vmaxnmq_f32, vmaxq_f32, vmaxvq_f32, vmulq_f32, vreinterpretq_f32_u32, vreinterpretq_u16_f16,
    vreinterpretq_u32_f32, vshlq_n_u32, vsubq_f32,
};

use zerocopy::transmute;

use super::powers::{Atom, EXPONENT_MIN, POWERS, ROUND_TO_ONE, each_atom};

/// Maxima whose instructions do not wait for each other.
const CHAINS: usize = 4;

/// `vmaxq` and `vmaxvq` return a NaN if an operand is one.
#[target_feature(enable = "neon")]
pub(super) fn largest(scores: &[f32]) -> f32 {
    let mut most = [vdupq_n_f32(f32::NEG_INFINITY); CHAINS];
    let (blocks, rest) = scores.as_chunks::<{ CHAINS * 4 }>();
    for block in blocks {
        let block: [float32x4_t; CHAINS] = transmute!(*block);
        for (most, scores) in most.iter_mut().zip(block) {
            *most = vmaxq_f32(*most, scores);
        }
    }
    let mut last = [f32::NEG_INFINITY; CHAINS * 4];
    last[..rest.len()].copy_from_slice(rest);
    let last: [float32x4_t; CHAINS] = transmute!(last);
    let [a, b, c, d] = std::array::from_fn(|at| vmaxq_f32(most[at], last[at]));
    vmaxvq_f32(vmaxq_f32(vmaxq_f32(a, b), vmaxq_f32(c, d)))
}

#[target_feature(enable = "neon")]
pub(super) fn exponentials(
    scores: &[f32],
    stride: usize,
    maxima: &[f32],
    surfaces: &mut [&mut [Atom]],
) {
    let splat = |maximum| vdupq_n_f32(maximum);
    each_atom(
        (scores, stride),
        maxima,
        surfaces,
        splat,
        |scores, maximum| {
            let [low, high]: [float32x4_t; 2] = transmute!(*scores);
            let low = exponential(vsubq_f32(low, maximum));
            let high = exponential(vsubq_f32(high, maximum));
            let halves = vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
            transmute!(halves)
        },
    );
}

#[target_feature(enable = "neon")]
fn exponential(x: float32x4_t) -> float32x4_t {
    let round = vdupq_n_f32(ROUND_TO_ONE);
    let [c1, c2, c3] = POWERS.map(|c| vdupq_n_f32(c));
    // `vmaxnmq` returns the other operand for a NaN.
    let y = vmulq_f32(x, vdupq_n_f32(std::f32::consts::LOG2_E));
    let y = vmaxnmq_f32(y, vdupq_n_f32(EXPONENT_MIN));
    let rounded = vaddq_f32(y, round);
    let f = vsubq_f32(y, vsubq_f32(rounded, round));
    let power = vfmaq_f32(c1, vfmaq_f32(c2, c3, f), f);
    let power = vreinterpretq_u32_f32(vfmaq_f32(vdupq_n_f32(1.0), power, f));
    let exponent = vshlq_n_u32::<23>(vreinterpretq_u32_f32(rounded));
    vreinterpretq_f32_u32(vaddq_u32(power, exponent))
}
