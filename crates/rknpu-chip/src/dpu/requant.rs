// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 results of many integers: the output converter on the host's vectors.
//!
//! [`OutCvt::byte`] defines them. float32 has too few bits for every product,
//! but what is wanted is one of 256 integers: where the scaled value is not
//! within its error of a rounding's threshold, no rounding can go elsewhere,
//! ties or not. The few that are that near are computed by the definition.

use super::out_cvt::OutCvt;
use crate::loops::{self, Loop};
use crate::mac_array::Ties;
#[cfg(target_arch = "x86_64")]
use crate::vectors::Avx2;
use crate::vectors::Vectors;

/// Bits behind the point of a scaled value.
#[cfg(target_arch = "x86_64")]
const FRACTION_BITS: i32 = 14;
/// Steps of the last bit around a threshold that are left to the definition,
/// on each side. The error is below 2: of a product up to 641 * 2^14 (those
/// that do not saturate, with an offset up to [`OFFSET_MAX`]) 0.63, as far as
/// the integer does not fit the mantissa; of an offset that is scaled 0.5; of
/// the sum 0.13; of the conversion 0.5.
#[cfg(target_arch = "x86_64")]
const GUARD: i32 = 4;
/// Largest offset in float32, of the result.
#[cfg(target_arch = "x86_64")]
const OFFSET_MAX: f64 = 512.0;
/// Widest shift that leaves room for the fraction in float64.
const EXACT_SHIFT: u32 = 62;
/// Where at least one value of 2^8 is a tie, too many are left to the
/// definition.
#[cfg(target_arch = "x86_64")]
const TIE_BITS: std::ops::RangeInclusive<u32> = 1..=7;

/// A converter to int8, ready for many values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requant {
    cvt: OutCvt,
    way: Way,
}

/// What is exact for a converter.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In float32, but for values near a threshold.
    #[cfg(target_arch = "x86_64")]
    Single(Avx2, Single),
    /// In float64.
    Double(Double),
    /// As the definition says.
    Defined,
}

/// `x * factor + bias` in units of 2^-[`FRACTION_BITS`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
struct Single {
    factor: f32,
    /// The offset, half a unit of the result, and [`GUARD`].
    bias: f32,
}

/// `(x + before) * factor`, rounded, and `after` added.
#[derive(Clone, Copy, Debug)]
struct Double {
    before: f64,
    factor: f64,
    after: f64,
}

impl Requant {
    /// A converter whose type in memory is int8.
    pub(crate) fn new(cvt: &OutCvt, vectors: Vectors) -> Self {
        let mut way = Way::Defined;
        let exact = vectors != Vectors::Literal && !cvt.floor && cvt.shift <= EXACT_SHIFT;
        if exact && cvt.ties == Ties::Even {
            way = Way::Double(Double::new(cvt));
        }
        #[cfg(target_arch = "x86_64")]
        if exact
            && let Vectors::Avx2(host) = vectors
            && let Some(single) = Single::new(cvt)
        {
            way = Way::Single(host, single);
        }
        Self { cvt: *cvt, way }
    }

    /// Makes `out` the bytes of `values`, of equal number.
    pub(crate) fn bytes(&self, values: &[i32], out: &mut [u8]) {
        match self.way {
            #[cfg(target_arch = "x86_64")]
            Way::Single(host, single) => {
                x86::bytes(host, &single, values, out, |x| self.cvt.byte(x))
            }
            Way::Double(double) => loops::run(Bytes {
                convert: |x| double.byte(x),
                values,
                out,
            }),
            Way::Defined => {
                for (byte, &x) in out.iter_mut().zip(values) {
                    *byte = self.cvt.byte(x);
                }
            }
        }
    }
}

/// The factor of a converter whose shift is at most [`EXACT_SHIFT`].
fn factor(cvt: &OutCvt) -> f64 {
    f64::from(cvt.scale) * (-f64::from(cvt.shift)).exp2()
}

#[cfg(target_arch = "x86_64")]
impl Single {
    fn new(cvt: &OutCvt) -> Option<Self> {
        let ties = cvt.shift.saturating_sub(cvt.scale.trailing_zeros());
        let mut offset = f64::from(cvt.offset);
        if cvt.add_first {
            offset *= factor(cvt);
        }
        if TIE_BITS.contains(&ties) || offset.abs() > OFFSET_MAX {
            return None;
        }
        let unit = f64::from(1 << FRACTION_BITS);
        Some(Self {
            factor: (factor(cvt) * unit) as f32,
            bias: ((offset + 0.5) * unit + f64::from(GUARD)) as f32,
        })
    }
}

impl Double {
    fn new(cvt: &OutCvt) -> Self {
        let offset = f64::from(cvt.offset);
        let (before, after) = if cvt.add_first {
            (offset, 0.0)
        } else {
            (0.0, offset)
        };
        Self {
            before,
            factor: factor(cvt),
            after,
        }
    }

    /// Product and offset stay below 2^49, and halving them SHIFT times only
    /// changes the exponent. Adding 1.5 * 2^52 then rounds to an integer, ties
    /// to even, and leaves it in the low bits.
    #[inline(always)]
    fn byte(&self, x: i32) -> u8 {
        const ROUND: f64 = 6_755_399_441_055_744.0;
        let scaled = (f64::from(x) + self.before) * self.factor;
        let value = (scaled + ROUND) - ROUND + self.after;
        let value = if value < -128.0 { -128.0 } else { value };
        let value = if value > 127.0 { 127.0 } else { value };
        (value + ROUND).to_bits() as u8
    }
}

/// int8 of many values.
struct Bytes<'a, F> {
    convert: F,
    values: &'a [i32],
    out: &'a mut [u8],
}

impl<F: Fn(i32) -> u8> Loop for Bytes<'_, F> {
    #[inline(always)]
    fn run(self) {
        for (byte, &x) in self.out.iter_mut().zip(self.values) {
            *byte = (self.convert)(x);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_cmpgt_epi32, _mm256_cvtepi32_ps, _mm256_cvtps_epi32,
        _mm256_fmadd_ps, _mm256_min_epu32, _mm256_min_ps, _mm256_movemask_epi8, _mm256_packs_epi16,
        _mm256_packs_epi32, _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_set1_ps,
        _mm256_srai_epi32,
    };

    use zerocopy::transmute;

    use super::{Avx2, FRACTION_BITS, GUARD, Single};

    /// Values of four registers, whose bytes fill one.
    const VALUES: usize = 32;
    /// Above all that matters; what is below the least i32 becomes that.
    const LIMIT: f32 = (1 << 30) as f32;

    pub(super) fn bytes(
        _: Avx2,
        single: &Single,
        values: &[i32],
        out: &mut [u8],
        exact: impl Fn(i32) -> u8,
    ) {
        // SAFETY: an `Avx2` is made only where the host has AVX2 and FMA.
        unsafe { bytes_fma(single, values, out, exact) }
    }

    #[target_feature(enable = "avx2,fma")]
    fn bytes_fma(single: &Single, values: &[i32], out: &mut [u8], exact: impl Fn(i32) -> u8) {
        let (factor, bias) = (_mm256_set1_ps(single.factor), _mm256_set1_ps(single.bias));
        let limit = _mm256_set1_ps(LIMIT);
        let fraction = _mm256_set1_epi32((1 << FRACTION_BITS) - 1);
        let near = _mm256_set1_epi32(2 * GUARD);
        let order: __m256i = transmute!([0, 4, 1, 5, 2, 6, 3, 7]);
        let (blocks, last) = values.as_chunks::<VALUES>();
        let (out, out_last) = out.as_chunks_mut::<VALUES>();
        for (out, block) in out.iter_mut().zip(blocks) {
            let values: [__m256i; 4] = transmute!(*block);
            let mut scaled = values;
            for x in &mut scaled {
                let y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(*x), factor, bias);
                *x = _mm256_cvtps_epi32(_mm256_min_ps(y, limit));
            }
            let mut least = fraction;
            for x in scaled {
                least = _mm256_min_epu32(least, _mm256_and_si256(x, fraction));
            }
            let [a, b, c, d] = scaled;
            let whole = |x| _mm256_srai_epi32::<FRACTION_BITS>(x);
            let low = _mm256_packs_epi32(whole(a), whole(b));
            let high = _mm256_packs_epi32(whole(c), whole(d));
            let bytes = _mm256_packs_epi16(low, high);
            *out = transmute!(_mm256_permutevar8x32_epi32(bytes, order));
            if _mm256_movemask_epi8(_mm256_cmpgt_epi32(near, least)) != 0 {
                let scaled: [i32; VALUES] = transmute!(scaled);
                for i in 0..VALUES {
                    if scaled[i] & ((1 << FRACTION_BITS) - 1) < 2 * GUARD {
                        out[i] = exact(block[i]);
                    }
                }
            }
        }
        for (byte, &x) in out_last.iter_mut().zip(last) {
            *byte = exact(x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::out_cvt::tests::cvt;
    use super::*;
    use crate::precision::Precision;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(512))]

        #[test]
        fn all_ways_make_the_bytes_of_the_definition(
            values in prop::collection::vec(
                prop_oneof![
                    any::<i32>(),
                    -70_000i32..70_000,
                    -600i32..600,
                    // Near ties of large scales.
                    (any::<i16>(), 0u32..16, -2i32..3)
                        .prop_map(|(x, by, near)| (i32::from(x) << by).saturating_add(near)),
                    Just(i32::MIN),
                    Just(i32::MAX),
                ],
                1..200,
            ),
            offset in prop_oneof![any::<i32>(), -600i32..600, -600_000i32..600_000],
            scale in prop_oneof![
                -0x8000i32..0x10000,
                (0u32..16).prop_map(|by| 1 << by),
                Just(0),
                Just(0x8000),
            ],
            shift in 0u32..66,
            ties in prop::sample::select(vec![Ties::Even, Ties::Up, Ties::Away]),
            add_first: bool,
            floor: bool,
        ) {
            let int8 = cvt(Precision::Int8);
            let cvt = OutCvt { offset, scale, shift, ties, add_first, floor, ..int8 };
            let want: Vec<u8> = values.iter().map(|&x| cvt.byte(x)).collect();
            for vectors in [Vectors::detect(), Vectors::Portable, Vectors::Literal] {
                let mut got = vec![0; values.len()];
                Requant::new(&cvt, vectors).bytes(&values, &mut got);
                prop_assert_eq!(&got, &want, "{:?}", vectors);
            }
        }
    }
}
