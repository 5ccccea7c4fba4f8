// SPDX-License-Identifier: MIT OR Apache-2.0
//! AVX2, FMA and F16C.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256, __m256d, _mm256_add_epi32, _mm256_add_pd, _mm256_add_ps, _mm256_castps256_ps128,
    _mm256_cvtph_ps, _mm256_cvtps_pd, _mm256_extractf128_ps, _mm256_madd_epi16, _mm256_shuffle_ps,
};

use zerocopy::transmute;

/// Proof that the host has AVX2, FMA and F16C. Only [`Self::detect`] makes one,
/// so functions that take one may use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }

    /// Adds the products of neighbours to each sum.
    #[inline(always)]
    pub(crate) fn madd(self, sums: &mut [i32; 8], a: &[i16; 16], b: &[i16; 16]) {
        // SAFETY: an `Avx2` exists only on hosts with these features.
        *sums = unsafe { madd(*sums, *a, *b) };
    }

    /// The sum of both halves of each of the four. Neighbours are added first,
    /// in float32 within a half, and the halves in float64.
    #[inline(always)]
    pub(crate) fn halves(self, lanes: &[[f32; 8]; 4]) -> [f64; 4] {
        // SAFETY: as above.
        unsafe { halves(*lanes) }
    }

    /// Converts fp16 to float32.
    #[inline(always)]
    pub(crate) fn widen(self, halves: &[u8; 16]) -> [f32; 8] {
        // SAFETY: as above.
        unsafe { widen(*halves) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn madd(sums: [i32; 8], a: [i16; 16], b: [i16; 16]) -> [i32; 8] {
    let products = _mm256_madd_epi16(transmute!(a), transmute!(b));
    transmute!(_mm256_add_epi32(transmute!(sums), products))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen(halves: [u8; 16]) -> [f32; 8] {
    transmute!(_mm256_cvtph_ps(transmute!(halves)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves(lanes: [[f32; 8]; 4]) -> [f64; 4] {
    let [w, x, y, z]: [__m256; 4] = transmute!(lanes);
    // Each half has one sum of four lanes for each of w, x, y and z.
    let quads = neighbours(neighbours(w, x), neighbours(y, z));
    let low: __m256d = _mm256_cvtps_pd(_mm256_castps256_ps128(quads));
    let high = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(quads));
    transmute!(_mm256_add_pd(low, high))
}

/// The sums of neighbours: in each half two of `x`, then two of `y`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn neighbours(x: __m256, y: __m256) -> __m256 {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    _mm256_add_ps(
        _mm256_shuffle_ps::<EVEN>(x, y),
        _mm256_shuffle_ps::<ODD>(x, y),
    )
}
