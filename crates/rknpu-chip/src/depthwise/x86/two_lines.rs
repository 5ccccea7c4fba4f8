// SPDX-License-Identifier: MIT OR Apache-2.0
//! AVX2 for [`super::super::two_lines`].

use std::arch::x86_64::{
    __m256i, _mm256_add_epi16, _mm256_add_epi32, _mm256_madd_epi16, _mm256_max_epi8,
    _mm256_min_epi8, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32,
    _mm256_setzero_si256, _mm256_sub_epi16, _mm256_sub_epi32,
};

use zerocopy::transmute;

use super::super::super::precision::ATOM;
use super::super::taps::Pairs;
use super::super::two_lines::{LINES, PRODUCTS, TILE, TwoLines};
use super::{Converter, half};

/// Tiles that the places of one reach into.
const TILES: usize = PRODUCTS / TILE;

/// Makes `out` the bytes of both lines.
#[target_feature(enable = "avx2,fma")]
pub(super) fn bytes(lines: &TwoLines<'_>, out: [&mut [[u8; ATOM]]; LINES]) {
    if (lines.finish.0.least, lines.finish.0.most) == (i8::MIN, i8::MAX) {
        all_tiles::<false>(lines, out);
    } else {
        all_tiles::<true>(lines, out);
    }
}

#[target_feature(enable = "avx2,fma")]
fn all_tiles<const BOUNDED: bool>(
    lines: &TwoLines<'_>,
    [above, below]: [&mut [[u8; ATOM]]; LINES],
) {
    let finish = &lines.finish.0;
    let converter = Converter::new(finish);
    let addends: [__m256i; 2] = transmute!(finish.addends);
    let [first, second] = lines.places.map(|places| places.as_chunks::<TILE>().0);
    let mut places = first.array_windows().zip(second.array_windows());
    let (above, rest_above) = above.as_chunks_mut::<TILE>();
    let (below, rest_below) = below.as_chunks_mut::<TILE>();
    for ((above, below), places) in above.iter_mut().zip(below).zip(&mut places) {
        [*above, *below] = tile::<BOUNDED>(lines, places.into(), addends, &converter);
    }
    if !rest_above.is_empty()
        && let Some(places) = places.next()
    {
        let last = tile::<BOUNDED>(lines, places.into(), addends, &converter);
        for (rest, last) in [rest_above, rest_below].into_iter().zip(last) {
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

/// The bytes of a tile of both lines.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn tile<const BOUNDED: bool>(
    lines: &TwoLines<'_>,
    places: [&[[Pairs; TILE]; TILES]; LINES],
    addends: [__m256i; 2],
    converter: &Converter,
) -> [[[u8; ATOM]; TILE]; LINES] {
    let low = half_tile::<0>(lines, places, addends[0], converter);
    let high = half_tile::<1>(lines, places, addends[1], converter);
    [
        pack::<BOUNDED>(low[0], high[0], converter),
        pack::<BOUNDED>(low[1], high[1], converter),
    ]
}

/// Half of the atoms of a tile of both lines, as numbers that are yet to be
/// cut to bytes.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn half_tile<const HALF: usize>(
    lines: &TwoLines<'_>,
    places: [&[[Pairs; TILE]; TILES]; LINES],
    addend: __m256i,
    converter: &Converter,
) -> [[__m256i; TILE]; LINES] {
    let mut products = [[_mm256_setzero_si256(); PRODUCTS]; LINES];
    // In both sums of a tile.
    for line in &mut products {
        line[1] = addend;
    }
    for (pair, [[a, b], [c, d]]) in places.into_iter().enumerate() {
        let [a, b, c, d] = [
            half::<HALF>(a),
            half::<HALF>(b),
            half::<HALF>(c),
            half::<HALF>(d),
        ];
        let values = [
            _mm256_sub_epi16(a, c),
            _mm256_add_epi16(b, c),
            _mm256_sub_epi16(c, b),
            _mm256_sub_epi16(d, b),
        ];
        for (products, filters) in products.iter_mut().zip(&lines.filters.0) {
            for (index, product) in products.iter_mut().enumerate() {
                let factor = half::<HALF>(&filters[pair][index]);
                *product = _mm256_add_epi32(*product, _mm256_madd_epi16(values[index], factor));
            }
        }
    }
    let mut numbers = [[_mm256_setzero_si256(); TILE]; LINES];
    for (numbers, [a, b, c, d]) in numbers.iter_mut().zip(products) {
        let first = _mm256_add_epi32(_mm256_add_epi32(b, c), a);
        let second = _mm256_add_epi32(_mm256_sub_epi32(b, c), d);
        *numbers = [converter.scale(first), converter.scale(second)];
    }
    numbers
}

/// The bytes of two pixels, of which both halves are given.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn pack<const BOUNDED: bool>(
    low: [__m256i; TILE],
    high: [__m256i; TILE],
    converter: &Converter,
) -> [[u8; ATOM]; TILE] {
    // By 32 bits: a0 a2 b0 b2 a1 a3 b1 b3.
    let bytes = _mm256_packs_epi16(
        _mm256_packs_epi32(low[0], high[0]),
        _mm256_packs_epi32(low[1], high[1]),
    );
    let order: __m256i = transmute!([0, 4, 1, 5, 2, 6, 3, 7]);
    let bytes = _mm256_permutevar8x32_epi32(bytes, order);
    if !BOUNDED {
        return transmute!(bytes);
    }
    let bytes = _mm256_max_epi8(bytes, converter.least);
    transmute!(_mm256_min_epi8(bytes, converter.most))
}
