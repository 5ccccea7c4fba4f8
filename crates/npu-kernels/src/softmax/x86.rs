// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exponentials of eight keys in one AVX2 register.

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32, _mm256_add_ps, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_fmadd_ps, _mm256_max_ps,
    _mm256_min_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_sub_ps,
};

use zerocopy::transmute;

use super::powers::{Atom, EXPONENT_MIN, POWERS, ROUND};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn exponentials(surfaces: &mut [Atom], offsets: &[f32]) {
    let scale = _mm256_set1_ps(std::f32::consts::LOG2_E);
    let [least, round, one] = [EXPONENT_MIN, ROUND, 1.0].map(|x| _mm256_set1_ps(x));
    let [c1, c2, c3] = POWERS.map(|c| _mm256_set1_ps(c));
    for surface in surfaces.chunks_exact_mut(offsets.len().max(1)) {
        for (atom, &offset) in surface.iter_mut().zip(offsets) {
            let score = _mm256_cvtph_ps(transmute!(*atom));
            let y = _mm256_fmadd_ps(score, scale, _mm256_set1_ps(offset));
            // `_mm256_max_ps` returns its second operand if the first is a NaN.
            let y = _mm256_min_ps(_mm256_max_ps(y, least), _mm256_setzero_ps());
            let rounded = _mm256_add_ps(y, round);
            let f = _mm256_sub_ps(y, _mm256_sub_ps(rounded, round));
            let power = _mm256_fmadd_ps(_mm256_fmadd_ps(c3, f, c2), f, c1);
            let power = _mm256_castps_si256(_mm256_fmadd_ps(power, f, one));
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(rounded));
            let power = _mm256_castsi256_ps(_mm256_add_epi32(power, exponent));
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(power);
            *atom = transmute!(halves);
        }
    }
}
