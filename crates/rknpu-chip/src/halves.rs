// SPDX-License-Identifier: MIT OR Apache-2.0
//! fp16 in memory as numbers to compute with.

use super::precision::{fp16_to_fp32, u16_at};

/// Widens the fp16 numbers of `source` (little endian, 2 bytes each) into
/// `out`. NaNs stay NaNs; which one is the host's choice.
pub(crate) fn widen(source: &[u8], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(host) = super::vectors::F16c::detect() {
        x86::widen(host, source, out);
        return;
    }
    portable(source, out);
}

/// The definition of [`widen`].
fn portable(source: &[u8], out: &mut [f32]) {
    for (value, pair) in out.iter_mut().zip(source.chunks_exact(2)) {
        *value = fp16_to_fp32(u16_at(pair, 0));
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::{__m128i, _mm256_cvtph_ps};

    use zerocopy::transmute;

    use super::super::vectors::F16c;

    pub(super) fn widen(_: F16c, source: &[u8], out: &mut [f32]) {
        // SAFETY: an `F16c` is made only where the host has AVX and F16C.
        unsafe { widen_f16c(source, out) }
    }

    #[target_feature(enable = "avx,f16c")]
    fn widen_f16c(source: &[u8], out: &mut [f32]) {
        let (halves, rest) = source.as_chunks::<16>();
        let (numbers, last) = out.as_chunks_mut::<8>();
        let whole = halves.len().min(numbers.len());
        for (numbers, halves) in numbers.iter_mut().zip(halves) {
            let halves: __m128i = transmute!(*halves);
            *numbers = transmute!(_mm256_cvtph_ps(halves));
        }
        if whole == numbers.len() {
            let behind = halves.get(whole..).unwrap_or_default().as_flattened();
            super::portable(if behind.is_empty() { rest } else { behind }, last);
        } else {
            super::portable(rest, numbers[whole..].as_flattened_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_pattern_widens_alike() {
        let source: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut fast = vec![0.0; 1 << 16];
        let mut slow = fast.clone();
        widen(&source, &mut fast);
        portable(&source, &mut slow);
        for (bits, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
            let same = fast.to_bits() == slow.to_bits() || fast.is_nan() && slow.is_nan();
            assert!(same, "{bits:#06x}: {fast} for {slow}");
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn any_length_widens_alike(
            source in prop::collection::vec(0u8..0x7c, 0..90),
            len in 0usize..45,
        ) {
            let mut fast = vec![-1.0f32; len];
            let mut slow = fast.clone();
            widen(&source, &mut fast);
            portable(&source, &mut slow);
            prop_assert_eq!(fast, slow);
        }
    }
}
