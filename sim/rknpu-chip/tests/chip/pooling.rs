// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares pooling with its definition.

use half::f16;
use proptest::prelude::*;
use rknpu_regcmd::regs::{ppu, ppu_rdma};

use super::board::Board;
use super::extents::assert_within;
use super::tensor::{Numbers, half_at};
use families::pooling::{Padding, PoolProgram};

proptest! {
    #![proptest_config(test_support::cases(32))]

    #[test]
    fn pooling_is_what_it_says(
        method in 0u32..3,
        (iw, ih) in (4u32..12, 4u32..12),
        (kw, kh) in (2u32..4, 2u32..4),
        (sx, sy) in (1u32..4, 1u32..4),
        (left, top, right, bottom) in (0u32..2, 0u32..2, 0u32..2, 0u32..2),
        surfaces in 1u32..4,
        beyond in prop_oneof![Just((0u32, 0u32)), (0u32..3, 0u32..3)],
        nans in 2usize..40,
        seed: u64,
    ) {
        // Windows may reach beyond the padding on the far sides.
        let out = |size: u32, near: u32, far: u32, k: u32, s: u32| (size + near + far - k) / s + 1;
        let ow = out(iw, left, right, kw, sx) + beyond.0;
        let oh = out(ih, top, bottom, kh, sy) + beyond.1;
        let mut numbers = Numbers::new(seed);
        let mut input = numbers.f16s((iw * ih * surfaces * 8) as usize);
        if method > 0 {
            input.iter_mut().step_by(nans).for_each(|value| *value = f16::NAN);
        }
        let bytes: Vec<u8> = input.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut board = if beyond == (0, 0) {
            Board::strict(1 << 18)
        } else {
            Board::new(1 << 18)
        };
        let len = (ow * oh * surfaces * 16) as usize;
        let at = (board.place(&bytes), board.reserve(len));
        let outside = [0.0, f32::NEG_INFINITY, f32::INFINITY][method as usize];
        let pool = PoolProgram {
            output: (ow, oh),
            channels: surfaces * 8,
            stride: (sx, sy),
            pad: Padding { left, top, right, bottom },
            pad_value: f16::from_f32(outside).to_bits().into(),
            ..PoolProgram::new(method, (iw, ih), (kw, kh), at)
        };
        let words = pool.program();
        let outcome = board.run(&words);
        assert_within(&words, &board.memory.accesses)?;
        prop_assert!(beyond != (0, 0) || outcome.diagnosis.is_empty(), "{:?}", outcome);
        // PPU_0, and the DPU's bit that the driver waits for.
        prop_assert_eq!(outcome.raw_status & 0xf00, 0x500);
        let got = board.bytes(at.1, len);
        for (c, p) in (0..surfaces * 8).flat_map(|c| (0..ow * oh).map(move |p| (c, p))) {
            let window = (0..kw * kh).map(|tap| {
                let y = (p / ow * sy + tap / kw).wrapping_sub(top);
                let x = (p % ow * sx + tap % kw).wrapping_sub(left);
                if y >= ih || x >= iw {
                    return outside;
                }
                input[(((c / 8) * iw * ih + y * iw + x) * 8 + c % 8) as usize].to_f32()
            });
            let at = (((c / 8) * ow * oh + p) * 8 + c % 8) as usize;
            let got = half_at(&got, at);
            // For a NaN and a number, both give the number.
            let want = match method {
                0 => {
                    let mean = window.map(f64::from).sum::<f64>() / f64::from(kw * kh);
                    // Two reciprocals in fp16, one rounding to fp16.
                    let bound = mean.abs() * 3.0 * (-11f64).exp2() + 1e-6;
                    prop_assert!((f64::from(got) - mean).abs() <= bound, "{} for {}", got, mean);
                    continue;
                }
                1 => window.fold(f32::NAN, f32::max),
                _ => window.fold(f32::NAN, f32::min),
            };
            prop_assert!(got == want || got.is_nan() && want.is_nan(), "{} for {}", got, want);
        }
    }
}

#[test]
fn bytes_and_words_are_pooled_as_integers() {
    let (iw, ih) = (6u32, 6u32);
    let input: Vec<u8> = (0..iw * ih * 16).map(|i| (i * 89 % 251) as u8).collect();
    let value = |bytes: &[u8], wide: bool, pixel: u32, c: usize| -> i32 {
        let atom = &bytes[pixel as usize * 16..];
        if wide {
            i16::from_le_bytes([atom[2 * c], atom[2 * c + 1]]).into()
        } else {
            i32::from(atom[c] as i8)
        }
    };
    for (method, wide, kernel) in [
        (0, false, (2, 2)),
        (0, false, (2, 3)),
        (1, false, (3, 3)),
        (2, false, (2, 2)),
        (1, true, (2, 2)),
        (2, true, (3, 2)),
    ] {
        let mut board = Board::strict(1 << 16);
        let (ow, oh) = (iw - kernel.0 + 1, ih - kernel.1 + 1);
        let at = (board.place(&input), board.reserve((ow * oh * 16) as usize));
        let pool = PoolProgram {
            channels: if wide { 8 } else { 16 },
            ..PoolProgram::new(method, (iw, ih), kernel, at)
        };
        let mut words = pool.words();
        words.change(ppu::DataFormat::OFFSET, 16 * ow * oh + u32::from(wide));
        words.change(ppu_rdma::DataFormat::OFFSET, 1 + u32::from(wide));
        if method == 0 {
            words.change(ppu::RecipKernelWidth::OFFSET, 0x10000 / kernel.0);
            words.change(ppu::RecipKernelHeight::OFFSET, 0x10000 / kernel.1);
        }
        board.run(&words.finish(0x60)).assert_clean();
        let got = board.bytes(pool.dst, (ow * oh * 16) as usize);
        for (p, c) in (0..ow * oh).flat_map(|p| (0..pool.channels as usize).map(move |c| (p, c))) {
            let window: Vec<i32> = (0..kernel.0 * kernel.1)
                .map(|tap| {
                    let (y, x) = (p / ow + tap / kernel.0, p % ow + tap % kernel.0);
                    value(&input, wide, y * iw + x, c)
                })
                .collect();
            let want = match method {
                0 => {
                    // rockchip-npu-notes: half away from zero, but an exact
                    // half steps back if the reciprocal is not exact or the
                    // quotient odd.
                    let n = (kernel.0 * kernel.1) as i32;
                    let sum: i32 = window.iter().sum();
                    let mut q = (sum.abs() + n / 2) / n * sum.signum();
                    let rest = sum - q * n;
                    let exact = 0x10000 % kernel.0 == 0 && 0x10000 % kernel.1 == 0;
                    if n % 2 == 0 && rest.abs() == n / 2 && (!exact || q % 2 != 0) {
                        q -= sum.signum();
                    }
                    q
                }
                1 => *window.iter().max().unwrap(),
                _ => *window.iter().min().unwrap(),
            };
            assert_eq!(
                value(&got, wide, p, c),
                want,
                "method {method}, kernel {kernel:?}, pixel {p}, channel {c}"
            );
        }
    }
}
