// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts f32 to binary16, rounding halves to even, and back.

use ::half::f16;

/// Rounds each element to binary16 and stores its two bytes, little endian. Too large values become
/// infinities; NaNs stay NaNs. Elements or bytes beyond the shorter slice are unchanged.
#[allow(unsafe_code)]
pub fn to_f16(row: &[f32], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<2>();
    let len = row.len().min(out.len());
    let (row, out) = (&row[..len], &mut out[..len]);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c") {
        // SAFETY: the host has AVX and F16C.
        return unsafe { x86::to_f16(row, out) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        const { assert!(cfg!(target_feature = "neon")) }
        // SAFETY: this target has NEON in its baseline, as was just asserted.
        unsafe { neon::to_f16(row, out) }
    }
    #[cfg(not(target_arch = "aarch64"))]
    reference(row, out);
}

/// Converts little-endian binary16 to f32. Elements beyond the shorter slice are unchanged.
#[allow(unsafe_code)]
pub fn from_f16(bytes: &[u8], out: &mut [f32]) {
    let (halves, _) = bytes.as_chunks::<2>();
    let len = halves.len().min(out.len());
    let (halves, out) = (&halves[..len], &mut out[..len]);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c") {
        // SAFETY: the host has AVX and F16C.
        return unsafe { x86::from_f16(halves, out) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        const { assert!(cfg!(target_feature = "neon")) }
        // SAFETY: this target has NEON in its baseline, as was just asserted.
        unsafe { neon::from_f16(halves, out) }
    }
    #[cfg(not(target_arch = "aarch64"))]
    widen(halves, out);
}

fastest! {
    /// Whether all elements are finite.
    pub fn all_finite(row: &[f16]) -> bool {
        const MAGNITUDE: u16 = 0x7fff;
        let magnitudes = row.iter().map(|x| x.to_bits() & MAGNITUDE);
        magnitudes.fold(0, u16::max) < f16::INFINITY.to_bits()
    }
}

/// The definition of [`from_f16`].
fn widen(halves: &[[u8; 2]], out: &mut [f32]) {
    for (x, &half) in out.iter_mut().zip(halves) {
        *x = f16::from_le_bytes(half).to_f32();
    }
}

/// The definition of [`to_f16`].
fn reference(row: &[f32], out: &mut [[u8; 2]]) {
    for (half, &x) in out.iter_mut().zip(row) {
        *half = f16::from_f32(x).to_le_bytes();
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};

    use zerocopy::transmute;

    #[target_feature(enable = "avx,f16c")]
    pub(super) fn to_f16(row: &[f32], out: &mut [[u8; 2]]) {
        let (singles, row) = row.as_chunks::<8>();
        let (halves, out) = out.as_chunks_mut::<8>();
        for (halves, &singles) in halves.iter_mut().zip(singles) {
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(transmute!(singles));
            *halves = transmute!(rounded);
        }
        super::reference(row, out);
    }

    #[target_feature(enable = "avx,f16c")]
    pub(super) fn from_f16(halves: &[[u8; 2]], out: &mut [f32]) {
        let (eights, halves) = halves.as_chunks::<8>();
        let (singles, out) = out.as_chunks_mut::<8>();
        for (singles, &eight) in singles.iter_mut().zip(eights) {
            let widened = _mm256_cvtph_ps(transmute!(eight));
            *singles = transmute!(widened);
        }
        super::widen(halves, out);
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::{
        float32x4_t, uint16x8_t, vcvt_f16_f32, vcvt_f32_f16, vcvt_high_f16_f32, vcvt_high_f32_f16,
        vget_low_f16, vreinterpretq_f16_u16, vreinterpretq_u16_f16,
    };

    use zerocopy::transmute;

    #[target_feature(enable = "neon")]
    pub(super) fn to_f16(row: &[f32], out: &mut [[u8; 2]]) {
        let (singles, row) = row.as_chunks::<8>();
        let (halves, out) = out.as_chunks_mut::<8>();
        for (halves, &singles) in halves.iter_mut().zip(singles) {
            let [low, high]: [float32x4_t; 2] = transmute!(singles);
            let rounded = vcvt_high_f16_f32(vcvt_f16_f32(low), high);
            let rounded: uint16x8_t = vreinterpretq_u16_f16(rounded);
            *halves = transmute!(rounded);
        }
        super::reference(row, out);
    }

    #[target_feature(enable = "neon")]
    pub(super) fn from_f16(halves: &[[u8; 2]], out: &mut [f32]) {
        let (eights, halves) = halves.as_chunks::<8>();
        let (singles, out) = out.as_chunks_mut::<8>();
        for (singles, &eight) in singles.iter_mut().zip(eights) {
            let bits: uint16x8_t = transmute!(eight);
            let eight = vreinterpretq_f16_u16(bits);
            let widened = [vcvt_f32_f16(vget_low_f16(eight)), vcvt_high_f32_f16(eight)];
            *singles = transmute!(widened);
        }
        super::widen(halves, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(row: &[f32]) {
        let mut fast = vec![0xa5; row.len() * 2 + 1];
        to_f16(row, &mut fast);
        let mut expected = vec![[0; 2]; row.len()];
        reference(row, &mut expected);
        let mut expected = expected.into_flattened();
        expected.push(0xa5);
        assert_eq!(fast, expected, "{row:?}");
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn any_bits(row in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..40)) {
            check(&row);
        }
    }

    #[test]
    fn every_half_widens() {
        let halves: Vec<_> = (0..=u16::MAX).map(u16::to_le_bytes).collect();
        let mut fast = vec![0.0; halves.len() - 3];
        from_f16(halves.as_flattened(), &mut fast);
        let mut slow = vec![0.0; fast.len()];
        widen(&halves, &mut slow);
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(fast.iter().zip(&slow).all(same));
    }

    #[test]
    fn every_half_is_finite_or_not() {
        for half in (0..=u16::MAX).map(f16::from_bits) {
            // Inside the vectors' lanes, and behind them.
            for at in [3, 69] {
                let mut row = [f16::MAX; 70];
                row[at] = half;
                assert_eq!(all_finite(&row), half.is_finite(), "{half}");
            }
        }
        assert!(all_finite(&[]));
    }

    /// Every binary16, the midpoints between neighbours, and the f32 values next to those.
    #[test]
    fn every_rounding_boundary() {
        let mut row = Vec::new();
        for bits in 0..0x7c00_u16 {
            let here = f16::from_bits(bits).to_f32();
            let next = f16::from_bits(bits + 1).to_f32();
            // Behind the largest finite value the next step would be 65536.
            let next = if next.is_finite() { next } else { 65536.0 };
            let middle = f32::midpoint(here, next);
            for x in [here, middle, middle.next_up(), middle.next_down()] {
                row.extend([x, -x]);
            }
        }
        check(&row);
    }

    #[test]
    fn less_room_than_elements() {
        let mut out = [0; 3];
        to_f16(&[1.0, 2.0], &mut out);
        assert_eq!(out, [0x00, 0x3c, 0]);
    }
}
