// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inner loop of a depthwise convolution: products of features and
//! weights, summed over the taps of each pixel's kernel.
//!
//! Taps come in pairs, since that is what vectors multiply and add at once.
//! Two products of a byte and an i16 fit an i32, and so does the sum of
//! [`super::TAPS_MAX`] of them.

use super::super::gemm::Vectors;
use super::super::precision::ATOM;

/// An atom of features or weights, widened.
pub(crate) type Lanes = [i16; ATOM];
/// The sums of a pixel's atom.
pub(crate) type Sums = [i32; ATOM];

/// What pixels of one line and one atom are summed from.
#[derive(Clone, Copy)]
pub(super) struct Taps<'a> {
    /// Features, an atom a place.
    pub(super) places: &'a [Lanes],
    /// Where the two taps of each pair are for the first pixel.
    pub(super) starts: &'a [[usize; 2]],
    /// The weights of each pair.
    pub(super) weights: &'a [[Lanes; 2]],
    /// Places from one pixel to the next.
    pub(super) step: usize,
}

impl Taps<'_> {
    /// Makes `sums` those of successive pixels.
    pub(super) fn sum(&self, vectors: Vectors, sums: &mut [Sums]) {
        match vectors {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => x86::sum(self, sums),
            _ => self.sum_portably(sums),
        }
    }

    /// The definition of [`Self::sum`].
    fn sum_portably(&self, sums: &mut [Sums]) {
        for (pixel, sums) in sums.iter_mut().enumerate() {
            let mut running = [0; ATOM];
            for (starts, weights) in self.starts.iter().zip(self.weights) {
                let [a, b] = starts.map(|start| &self.places[start + pixel * self.step]);
                for c in 0..ATOM {
                    running[c] += i32::from(a[c]) * i32::from(weights[0][c])
                        + i32::from(b[c]) * i32::from(weights[1][c]);
                }
            }
            *sums = running;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_madd_epi16, _mm256_permute2x128_si256,
        _mm256_setzero_si256, _mm256_unpackhi_epi16, _mm256_unpacklo_epi16,
    };

    use zerocopy::transmute;

    use super::{Lanes, Sums, Taps};

    /// Pixels that share a load of their weights: with two sums each, half of
    /// the registers.
    const PIXELS: usize = 4;

    pub(super) fn sum(taps: &Taps<'_>, sums: &mut [Sums]) {
        // SAFETY: only `Vectors::Avx2` comes here, which `Vectors::detect`
        // gives where the host has AVX2.
        unsafe { sum_avx2(taps, sums) }
    }

    #[target_feature(enable = "avx2")]
    fn sum_avx2(taps: &Taps<'_>, sums: &mut [Sums]) {
        let (blocks, rest) = sums.as_chunks_mut::<PIXELS>();
        let done = blocks.len() * PIXELS;
        for (index, block) in blocks.iter_mut().enumerate() {
            pixels(taps, index * PIXELS, block);
        }
        for (index, sums) in rest.iter_mut().enumerate() {
            pixels(taps, done + index, std::array::from_mut(sums));
        }
    }

    /// Neighbouring products are what `madd` adds: two atoms are interleaved,
    /// within each half of a register, and the halves put in order at the end.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn pixels<const N: usize>(taps: &Taps<'_>, first: usize, sums: &mut [Sums; N]) {
        let mut running = [[_mm256_setzero_si256(); 2]; N];
        let places = taps.places;
        for (starts, weights) in taps.starts.iter().zip(taps.weights) {
            let [wa, wb]: [__m256i; 2] = transmute!(*weights);
            let (low, high) = (_mm256_unpacklo_epi16(wa, wb), _mm256_unpackhi_epi16(wa, wb));
            let [at_a, at_b] = starts.map(|start| start + first * taps.step);
            let mut add = |n: usize, a: Lanes, b: Lanes| {
                let (a, b): (__m256i, __m256i) = (transmute!(a), transmute!(b));
                let [even, odd] = running[n];
                running[n] = [
                    _mm256_add_epi32(even, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), low)),
                    _mm256_add_epi32(odd, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), high)),
                ];
            };
            // One check of bounds for all pixels where they are neighbours.
            if taps.step == 1 {
                let (a, b) = (&places[at_a..][..N], &places[at_b..][..N]);
                for n in 0..N {
                    add(n, a[n], b[n]);
                }
            } else {
                for n in 0..N {
                    add(
                        n,
                        places[at_a + n * taps.step],
                        places[at_b + n * taps.step],
                    );
                }
            }
        }
        for n in 0..N {
            let [even, odd] = running[n];
            sums[n] = transmute!([
                _mm256_permute2x128_si256::<0x20>(even, odd),
                _mm256_permute2x128_si256::<0x31>(even, odd),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn vectors_sum_what_the_definition_says(
            pixels in 0usize..11,
            step in 0usize..4,
            starts in prop::collection::vec((0usize..9, 0usize..9), 0..7),
            seed: u16,
        ) {
            let mut state = u32::from(seed);
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 16
            };
            let places: Vec<Lanes> = (0..9 + pixels * step)
                .map(|_| std::array::from_fn(|_| i16::from(next() as i8)))
                .collect();
            let starts: Vec<[usize; 2]> = starts.iter().map(|&(a, b)| [a, b]).collect();
            let weights: Vec<[Lanes; 2]> = starts
                .iter()
                .map(|_| std::array::from_fn(|_| std::array::from_fn(|_| next() as i16)))
                .collect();
            let taps = Taps { places: &places, starts: &starts, weights: &weights, step };
            let (mut fast, mut want) = (vec![[7; ATOM]; pixels], vec![[8; ATOM]; pixels]);
            taps.sum(Vectors::detect(), &mut fast);
            taps.sum_portably(&mut want);
            prop_assert_eq!(fast, want);
        }
    }
}
