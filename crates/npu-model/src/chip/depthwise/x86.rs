// SPDX-License-Identifier: MIT OR Apache-2.0
//! AVX2 for [`super::taps`].

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
use super::taps::{BLOCK, Pairs, Source, Sums, Taps};

/// Neighbouring columns of the kernel that share the loads of their features.
const NEIGHBOURS: usize = 3;
/// Places that a block reads for them.
const SHARED: usize = BLOCK + NEIGHBOURS - 1;
/// Pixels whose bytes fill a register for half of an atom.
const PACKED: usize = 4;

pub(super) fn sum(taps: &Taps<'_>, sums: &mut [Sums]) {
    // SAFETY: only `Vectors::Avx2` comes here, which `Vectors::detect` gives
    // where the host has AVX2 and FMA.
    unsafe { sum_avx2(taps, sums) }
}

pub(super) fn bytes(taps: &Taps<'_>, finish: &Finish, out: &mut [[u8; ATOM]]) {
    // SAFETY: as above.
    unsafe { bytes_fma(taps, finish, out) }
}

pub(super) fn pair_up(lines: [Source<'_>; 2], out: &mut [Pairs]) {
    // SAFETY: as above.
    unsafe { pair_up_avx2(lines, out) }
}

#[target_feature(enable = "avx2")]
fn pair_up_avx2([a, b]: [Source<'_>; 2], out: &mut [Pairs]) {
    for (place, out) in out.iter_mut().enumerate() {
        let (a, b): (__m128i, __m128i) = (transmute!(a.atom(place)), transmute!(b.atom(place)));
        let (low, high) = (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b));
        *out = Pairs(transmute!([
            _mm256_cvtepi8_epi16(low),
            _mm256_cvtepi8_epi16(high)
        ]));
    }
}

#[target_feature(enable = "avx2")]
fn sum_avx2(taps: &Taps<'_>, sums: &mut [Sums]) {
    let zeros = [0; ATOM];
    for (index, out) in sums.chunks_mut(BLOCK).enumerate() {
        let low = block::<0>(taps, index * BLOCK, &zeros);
        let high = block::<1>(taps, index * BLOCK, &zeros);
        for (out, (low, high)) in out.iter_mut().zip(low.into_iter().zip(high)) {
            *out = transmute!([low, high]);
        }
    }
}

/// The converter in registers.
struct Converter {
    factor: __m256,
    bias: __m256,
    least: __m256i,
    most: __m256i,
}

#[target_feature(enable = "avx2,fma")]
fn bytes_fma(taps: &Taps<'_>, finish: &Finish, out: &mut [[u8; ATOM]]) {
    let converter = Converter {
        factor: _mm256_set1_ps(finish.steps.factor),
        bias: _mm256_set1_ps(finish.steps.bias),
        least: _mm256_set1_epi8(finish.least),
        most: _mm256_set1_epi8(finish.most),
    };
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    let done = blocks.len() * BLOCK;
    for (index, block) in blocks.iter_mut().enumerate() {
        *block = bytes_of_block(taps, index * BLOCK, finish, &converter);
    }
    if !rest.is_empty() {
        let block = bytes_of_block(taps, done, finish, &converter);
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn bytes_of_block(
    taps: &Taps<'_>,
    first: usize,
    finish: &Finish,
    converter: &Converter,
) -> [[u8; ATOM]; BLOCK] {
    let low = pack(block::<0>(taps, first, &finish.addends), converter);
    let high = pack(block::<1>(taps, first, &finish.addends), converter);
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
fn pack(sums: [__m256i; BLOCK], converter: &Converter) -> [__m256i; BLOCK / PACKED] {
    let scaled = sums.map(|x| {
        let x = _mm256_cvtepi32_ps(x);
        _mm256_cvtps_epi32(_mm256_fmadd_ps(x, converter.factor, converter.bias))
    });
    let mut packed = [_mm256_set1_epi8(0); BLOCK / PACKED];
    for (packed, quad) in packed.iter_mut().zip(scaled.as_chunks::<PACKED>().0) {
        let [a, b, c, d] = *quad;
        let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        let bytes = _mm256_max_epi8(bytes, converter.least);
        *packed = _mm256_min_epi8(bytes, converter.most);
    }
    packed
}

/// Sums of one half of the atoms of [`BLOCK`] pixels, on top of `addends`.
/// What sums of places that hold no pixel are is of no matter: they may wrap.
#[target_feature(enable = "avx2")]
#[inline]
fn block<const HALF: usize>(taps: &Taps<'_>, first: usize, addends: &Sums) -> [__m256i; BLOCK] {
    let addends: [__m256i; 2] = transmute!(*addends);
    let mut running = [addends[HALF]; BLOCK];
    let neighbours = taps.step == 1 && taps.apart == 1;
    let rows = taps.weights.chunks_exact(taps.columns);
    for (row, weights) in taps.rows.iter().zip(rows) {
        let places = &taps.places[row + first * taps.step..];
        let mut column = 0;
        if neighbours {
            for weights in weights.as_chunks::<NEIGHBOURS>().0 {
                let Some(places) = places[column..].first_chunk::<SHARED>() else {
                    return running;
                };
                let weights = weights.map(|w| half::<HALF>(&w));
                for (place, features) in places.iter().enumerate() {
                    let features = half::<HALF>(features);
                    for (tap, weights) in weights.iter().enumerate() {
                        if let Some(pixel) = place.checked_sub(tap).filter(|&p| p < BLOCK) {
                            let product = _mm256_madd_epi16(features, *weights);
                            running[pixel] = _mm256_add_epi32(running[pixel], product);
                        }
                    }
                }
                column += NEIGHBOURS;
            }
        }
        for (column, weights) in weights.iter().enumerate().skip(column) {
            let places = &places[column * taps.apart..][..(BLOCK - 1) * taps.step + 1];
            let weights = half::<HALF>(weights);
            for (pixel, running) in running.iter_mut().enumerate() {
                let features = half::<HALF>(&places[pixel * taps.step]);
                *running = _mm256_add_epi32(*running, _mm256_madd_epi16(features, weights));
            }
        }
    }
    running
}

/// Eight of the channels of an atom.
#[target_feature(enable = "avx2")]
#[inline]
fn half<const HALF: usize>(pairs: &Pairs) -> __m256i {
    let halves: [__m256i; 2] = transmute!(pairs.0);
    halves[HALF]
}
