// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exponentials of eight keys in one AVX2 register.

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32, _mm256_add_ps, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_cvtps_ph, _mm256_fmadd_ps, _mm256_max_ps, _mm256_mul_ps,
    _mm256_set1_ps, _mm256_slli_epi32, _mm256_sub_ps,
};

use zerocopy::transmute;

use super::powers::{Atom, EXPONENT_MIN, POWERS, ROUND_TO_ONE, each_atom};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn exponentials(
    scores: &[f32],
    stride: usize,
    maxima: &[f32],
    surfaces: &mut [&mut [Atom]],
) {
    let scale = _mm256_set1_ps(std::f32::consts::LOG2_E);
    let [least, round, one] = [EXPONENT_MIN, ROUND_TO_ONE, 1.0].map(|x| _mm256_set1_ps(x));
    let [c1, c2, c3] = POWERS.map(|c| _mm256_set1_ps(c));
    let splat = |maximum| _mm256_set1_ps(maximum);
    each_atom(
        (scores, stride),
        maxima,
        surfaces,
        splat,
        |scores, maximum| {
            let x = _mm256_sub_ps(transmute!(*scores), maximum);
            // `_mm256_max_ps` returns its second operand if the first is a NaN.
            let y = _mm256_max_ps(_mm256_mul_ps(x, scale), least);
            let rounded = _mm256_add_ps(y, round);
            let f = _mm256_sub_ps(y, _mm256_sub_ps(rounded, round));
            let power = _mm256_fmadd_ps(_mm256_fmadd_ps(c3, f, c2), f, c1);
            let power = _mm256_castps_si256(_mm256_fmadd_ps(power, f, one));
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(rounded));
            let power = _mm256_castsi256_ps(_mm256_add_epi32(power, exponent));
            transmute!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(power))
        },
    );
}
