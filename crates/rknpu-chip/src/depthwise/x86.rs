// SPDX-License-Identifier: MIT OR Apache-2.0
//! AVX2 for [`super::taps`].

mod two_lines;

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_unpackhi_epi8, _mm_unpacklo_epi8, _mm256_add_epi32,
    _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps, _mm256_cvtps_epi32, _mm256_fmadd_ps,
    _mm256_madd_epi16, _mm256_max_epi8, _mm256_min_epi8, _mm256_packs_epi16, _mm256_packs_epi32,
    _mm256_permute2x128_si256, _mm256_permutevar8x32_epi32, _mm256_set1_epi8, _mm256_set1_ps,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi64,
};

use zerocopy::transmute;

use super::super::dpu::steps::Finish;
use super::super::precision::ATOM;
use super::super::vectors::Avx2;
use super::taps::{BLOCK, KEPT, NEIGHBOURS, Pairs, Source, Sums, Taps};
use super::two_lines::{LINES, TwoLines};

/// Places that a block reads for neighbouring columns.
const SHARED: usize = BLOCK + NEIGHBOURS - 1;
/// Pixels whose bytes fill a register for half of an atom.
const PACKED: usize = 4;
/// Channels that a register holds sums of.
const HALF_ATOM: usize = ATOM / 2;

pub(super) fn sum(_: Avx2, taps: &Taps<'_>, sums: &mut [Sums]) {
    // SAFETY: an `Avx2` is made only where the host has AVX2 and FMA.
    unsafe { sum_avx2(taps, sums) }
}

pub(super) fn bytes(
    _: Avx2,
    taps: &Taps<'_>,
    finish: &Finish,
    kept: &mut [Sums],
    out: &mut [[u8; ATOM]],
) {
    // SAFETY: as above.
    unsafe { bytes_fma(taps, finish, kept, out) }
}

pub(super) fn two_lines(_: Avx2, lines: &TwoLines<'_>, out: [&mut [[u8; ATOM]]; LINES]) {
    // SAFETY: as above.
    unsafe { two_lines::bytes(lines, out) }
}

pub(super) fn pair_up(_: Avx2, lines: [Source<'_>; 2], out: &mut [Pairs]) {
    // SAFETY: as above.
    unsafe { pair_up_avx2(lines, out) }
}

#[target_feature(enable = "avx2")]
fn pair_up_avx2([a, b]: [Source<'_>; 2], out: &mut [Pairs]) {
    if let (Some(a), Some(b)) = (a.atoms(out.len()), b.atoms(out.len())) {
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out = pair(*a, *b);
        }
        return;
    }
    for (place, out) in out.iter_mut().enumerate() {
        *out = pair(a.atom(place), b.atom(place));
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn pair(a: [u8; ATOM], b: [u8; ATOM]) -> Pairs {
    let (a, b): (__m128i, __m128i) = (transmute!(a), transmute!(b));
    let (low, high) = (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b));
    Pairs(transmute!([
        _mm256_cvtepi8_epi16(low),
        _mm256_cvtepi8_epi16(high)
    ]))
}

#[target_feature(enable = "avx2")]
fn sum_avx2(taps: &Taps<'_>, sums: &mut [Sums]) {
    let (blocks, rest) = sums.as_chunks_mut::<BLOCK>();
    let done = blocks.len() * BLOCK;
    both_halves(taps, 0, &[0; ATOM], blocks);
    if !rest.is_empty() {
        let mut last = [[0; ATOM]; BLOCK];
        both_halves(taps, done, &[0; ATOM], std::slice::from_mut(&mut last));
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Makes `out` the sums of blocks from the pixel `first` on, on top of
/// `addends`.
#[target_feature(enable = "avx2")]
fn both_halves(taps: &Taps<'_>, first: usize, addends: &Sums, out: &mut [[Sums; BLOCK]]) {
    half_line::<0>(taps, first, addends, out);
    half_line::<1>(taps, first, addends, out);
}

/// The converter in registers.
struct Converter {
    factor: __m256,
    bias: __m256,
    least: __m256i,
    most: __m256i,
}

impl Converter {
    #[target_feature(enable = "avx2,fma")]
    fn new(finish: &Finish) -> Self {
        Self {
            factor: _mm256_set1_ps(finish.steps.factor),
            bias: _mm256_set1_ps(finish.steps.bias),
            least: _mm256_set1_epi8(finish.least),
            most: _mm256_set1_epi8(finish.most),
        }
    }

    /// Integers that saturate to what bounds have yet to cut.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn scale(&self, sums: __m256i) -> __m256i {
        let sums = _mm256_cvtepi32_ps(sums);
        _mm256_cvtps_epi32(_mm256_fmadd_ps(sums, self.factor, self.bias))
    }
}

#[target_feature(enable = "avx2,fma")]
fn bytes_fma(taps: &Taps<'_>, finish: &Finish, kept: &mut [Sums], out: &mut [[u8; ATOM]]) {
    let converter = Converter::new(finish);
    let (kept, _) = kept.as_chunks_mut::<BLOCK>();
    for (index, out) in out.chunks_mut(KEPT).enumerate() {
        let kept = &mut kept[..out.len().div_ceil(BLOCK)];
        both_halves(taps, index * KEPT, &finish.addends, kept);
        for (out, sums) in out.chunks_mut(BLOCK).zip(kept) {
            let bytes = bytes_of_block(sums, &converter);
            match <&mut [[u8; ATOM]; BLOCK]>::try_from(&mut *out) {
                Ok(out) => *out = bytes,
                Err(_) => out.copy_from_slice(&bytes[..out.len()]),
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn bytes_of_block(sums: &[Sums; BLOCK], converter: &Converter) -> [[u8; ATOM]; BLOCK] {
    let (low, high) = (pack::<0>(sums, converter), pack::<1>(sums, converter));
    let order: __m256i = transmute!([0, 4, 1, 5, 2, 6, 3, 7]);
    let mut bytes = [[_mm256_set1_epi8(0); 2]; BLOCK / PACKED];
    for (bytes, (low, high)) in bytes.iter_mut().zip(low.into_iter().zip(high)) {
        let low = _mm256_permutevar8x32_epi32(low, order);
        let high = _mm256_permutevar8x32_epi32(high, order);
        let even = _mm256_unpacklo_epi64(low, high);
        let odd = _mm256_unpackhi_epi64(low, high);
        *bytes = [
            _mm256_permute2x128_si256::<0x20>(even, odd),
            _mm256_permute2x128_si256::<0x31>(even, odd),
        ];
    }
    transmute!(bytes)
}

/// The bytes of half an atom of each pixel. Of four pixels a to d a register
/// holds, by 32 bits, a0 b0 c0 d0 a1 b1 c1 d1.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn pack<const HALF: usize>(
    sums: &[Sums; BLOCK],
    converter: &Converter,
) -> [__m256i; BLOCK / PACKED] {
    let mut scaled = [_mm256_set1_epi8(0); BLOCK];
    for (scaled, sums) in scaled.iter_mut().zip(sums) {
        let halves: [__m256i; 2] = transmute!(*sums);
        *scaled = converter.scale(halves[HALF]);
    }
    let mut packed = [_mm256_set1_epi8(0); BLOCK / PACKED];
    for (packed, quad) in packed.iter_mut().zip(scaled.as_chunks::<PACKED>().0) {
        let [a, b, c, d] = *quad;
        let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        let bytes = _mm256_max_epi8(bytes, converter.least);
        *packed = _mm256_min_epi8(bytes, converter.most);
    }
    packed
}

/// Sums of one half of the atoms of blocks from the pixel `first` on, on top
/// of `addends`. What sums of places that hold no pixel are is of no matter:
/// they may wrap.
#[target_feature(enable = "avx2")]
fn half_line<const HALF: usize>(
    taps: &Taps<'_>,
    first: usize,
    addends: &Sums,
    out: &mut [[Sums; BLOCK]],
) {
    let addends: [__m256i; 2] = transmute!(*addends);
    let (weights, starts) = (taps.weights, taps.starts);
    for (index, out) in out.iter_mut().enumerate() {
        let offset = (first + index * BLOCK) * taps.step;
        let mut running = [addends[HALF]; BLOCK];
        for (start, weights) in starts.runs.iter().zip(&weights.runs) {
            let places = taps.places.get(start + offset..);
            let Some(places) = places.and_then(<[Pairs]>::first_chunk::<SHARED>) else {
                return;
            };
            let [a, b, c] = [
                half::<HALF>(&weights[0]),
                half::<HALF>(&weights[1]),
                half::<HALF>(&weights[2]),
            ];
            for (place, features) in places.iter().enumerate() {
                let features = half::<HALF>(features);
                if place < BLOCK {
                    running[place] = add_products(running[place], features, a);
                }
                if (1..=BLOCK).contains(&place) {
                    running[place - 1] = add_products(running[place - 1], features, b);
                }
                if place > 1 {
                    running[place - 2] = add_products(running[place - 2], features, c);
                }
            }
        }
        for (start, weights) in starts.singles.iter().zip(&weights.singles) {
            let places = &taps.places[start + offset..][..(BLOCK - 1) * taps.step + 1];
            let weights = half::<HALF>(weights);
            for (pixel, running) in running.iter_mut().enumerate() {
                let features = half::<HALF>(&places[pixel * taps.step]);
                *running = add_products(*running, features, weights);
            }
        }
        for (out, running) in out.iter_mut().zip(running) {
            let sums: [i32; HALF_ATOM] = transmute!(running);
            out[HALF * HALF_ATOM..][..HALF_ATOM].copy_from_slice(&sums);
        }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn add_products(sums: __m256i, features: __m256i, weights: __m256i) -> __m256i {
    _mm256_add_epi32(sums, _mm256_madd_epi16(features, weights))
}

/// Eight of the channels of an atom.
#[target_feature(enable = "avx2")]
#[inline]
fn half<const HALF: usize>(pairs: &Pairs) -> __m256i {
    let halves: [__m256i; 2] = transmute!(pairs.0);
    halves[HALF]
}
