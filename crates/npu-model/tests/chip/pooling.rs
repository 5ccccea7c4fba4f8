// SPDX-License-Identifier: MIT OR Apache-2.0
//! fp16 pooling against its definition.

use half::f16;
use proptest::prelude::*;

use super::board::Board;
use super::programs::Pool;
use super::tensor::Numbers;

proptest! {
    #![proptest_config(test_support::cases(32))]

    #[test]
    fn pooling_is_what_it_says(
        method in 0u32..3,
        (iw, ih) in (4u32..12, 4u32..12),
        (kw, kh) in (2u32..4, 2u32..4),
        (sx, sy) in (1u32..4, 1u32..4),
        pad in (0u32..2, 0u32..2, 0u32..2, 0u32..2),
        surfaces in 1u32..4,
        seed: u64,
    ) {
        let out = |size: u32, near: u32, far: u32, k: u32, s: u32| (size + near + far - k) / s + 1;
        let (ow, oh) = (out(iw, pad.0, pad.2, kw, sx), out(ih, pad.1, pad.3, kh, sy));
        let mut numbers = Numbers::new(seed);
        let input = numbers.f16s((iw * ih * surfaces * 8) as usize);
        let bytes: Vec<u8> = input.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut board = Board::strict(1 << 18);
        let src = board.place(&bytes);
        let len = (ow * oh * surfaces * 16) as usize;
        let dst = board.reserve(len);
        let padded = pad != (0, 0, 0, 0);
        let pool = Pool {
            input: (iw, ih),
            output: (ow, oh),
            channels: surfaces * 8,
            method,
            kernel: (kw, kh),
            stride: (sx, sy),
            pad,
            pad_value: match method {
                1 if padded => 0xfc00,
                2 => 0x7c00,
                _ => 0,
            },
            src,
            dst,
        };
        let outcome = board.run(&pool.program());
        outcome.assert_clean();
        // PPU_0, and the DPU's bit that the driver waits for.
        prop_assert_eq!(outcome.raw_status & 0xf00, 0x500);
        let got = board.bytes(dst, len);
        for c in 0..surfaces * 8 {
            for p in 0..ow * oh {
                let mut values = Vec::new();
                for ky in 0..kh {
                    for kx in 0..kw {
                        let y = (p / ow * sy + ky).wrapping_sub(pad.1);
                        let x = (p % ow * sx + kx).wrapping_sub(pad.0);
                        values.push((y < ih && x < iw).then(|| {
                            input[(((c / 8) * iw * ih + y * iw + x) * 8 + c % 8) as usize].to_f32()
                        }));
                    }
                }
                let real = values.iter().flatten().copied();
                let at = (((c / 8) * ow * oh + p) * 16 + (c % 8) * 2) as usize;
                let got = f16::from_le_bytes([got[at], got[at + 1]]).to_f32();
                match method {
                    0 => {
                        let mean = real.map(f64::from).sum::<f64>() / f64::from(kw * kh);
                        // Two reciprocals in fp16, one rounding to fp16.
                        let bound = mean.abs() * 3.0 * (-11f64).exp2() + 1e-6;
                        prop_assert!((f64::from(got) - mean).abs() <= bound, "{} for {}", got, mean);
                    }
                    1 => prop_assert_eq!(got, real.fold(f32::NEG_INFINITY, f32::max)),
                    _ => prop_assert_eq!(got, real.fold(f32::INFINITY, f32::min)),
                }
            }
        }
    }
}
