// SPDX-License-Identifier: MIT OR Apache-2.0
//! Convolutions against their definition.

use half::f16;
use proptest::prelude::*;
use rknpu_regcmd::regs::cna;
use rknpu_regcmd::{LintContext, lint};

use super::board::Board;
use super::programs::{Conv, MatType, Rdma};
use super::tensor::Numbers;

#[derive(Clone, Copy, Debug)]
struct Shape {
    input: (usize, usize, usize),
    channels_out: usize,
    kernel: (usize, usize),
    stride: (usize, usize),
    dilation: (usize, usize),
    pad: (usize, usize),
    /// Padding on the right and below, which no register holds.
    far_pad: (usize, usize),
}

impl Shape {
    fn output(&self) -> (usize, usize) {
        let one = |size: usize, pad: usize, far: usize, kernel: usize, dilation: usize, stride| {
            (size + pad + far - dilation * (kernel - 1) - 1) / stride + 1
        };
        (
            one(
                self.input.0,
                self.pad.0,
                self.far_pad.0,
                self.kernel.0,
                self.dilation.0,
                self.stride.0,
            ),
            one(
                self.input.1,
                self.pad.1,
                self.far_pad.1,
                self.kernel.1,
                self.dilation.1,
                self.stride.1,
            ),
        )
    }

    /// The sum for one output; `at(c, y, x)` and `w(c, ky, kx)` give the
    /// operands, `None` stands for a padded pixel.
    fn sum(
        &self,
        (oy, ox): (usize, usize),
        channels: std::ops::Range<usize>,
        at: impl Fn(usize, Option<(usize, usize)>) -> f64,
        w: impl Fn(usize, usize, usize) -> f64,
    ) -> f64 {
        let mut sum = 0.0;
        for c in channels {
            for ky in 0..self.kernel.1 {
                for kx in 0..self.kernel.0 {
                    let y = (oy * self.stride.1 + ky * self.dilation.1) as i64 - self.pad.1 as i64;
                    let x = (ox * self.stride.0 + kx * self.dilation.0) as i64 - self.pad.0 as i64;
                    let inside = (0..self.input.1 as i64).contains(&y)
                        && (0..self.input.0 as i64).contains(&x);
                    let place = inside.then_some((y as usize, x as usize));
                    sum += at(c, place) * w(c, ky, kx);
                }
            }
        }
        sum
    }

    fn base(&self, ty: MatType, at: (u32, u32, u32)) -> Conv {
        let (iw, ih, ic) = self.input;
        let (ow, oh) = self.output();
        let esz = ty.half_bytes() / 2;
        let pixels = (ow * oh) as u32;
        let mut conv = ty.matmul(4, ic as u32, self.channels_out as u32, at);
        let taps = self.kernel.0 * self.kernel.1;
        conv.input = (iw as u32, ih as u32, ic as u32);
        conv.output = (ow as u32, oh as u32, self.channels_out as u32);
        conv.kernel = (self.kernel.0 as u32, self.kernel.1 as u32);
        conv.stride = (self.stride.0 as u32, self.stride.1 as u32);
        conv.dilation = (self.dilation.0 as u32, self.dilation.1 as u32);
        conv.pad = (self.pad.0 as u32, self.pad.1 as u32);
        conv.grains = ih as u32 + 1;
        conv.kernel_bytes = (taps * ic * esz) as u32;
        conv.weight_bytes = conv.kernel_bytes * conv.kernels;
        conv.entries = ((iw * ic * esz) as u32).div_ceil(64);
        conv.data_banks = (ih as u32 * conv.entries * 64).div_ceil(32768);
        conv.line_stride = 4 * iw as u32;
        conv.surf_stride = iw as i32 * (ih as i32 - 4);
        let width = conv.size_e + 1;
        conv.writer = (ow as u32, oh as u32, pixels, 0, width * pixels);
        conv
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        (1usize..10, 1usize..10, 1usize..3),
        1usize..3,
        (1usize..4, 1usize..4),
        (1usize..4, 1usize..4),
        (1usize..3, 1usize..3),
        (0usize..3, 0usize..3),
        (0usize..3, 0usize..3),
    )
        .prop_filter_map(
            "the kernel fits the padded input",
            |(input, out, kernel, stride, dilation, pad, far_pad)| {
                let fits = |size: usize, pad: usize, far: usize, k: usize, d: usize| {
                    size + pad + far > d * (k - 1)
                };
                // FEATURE_GRAINS is the height + 1, and must hold a window.
                (fits(input.0, pad.0, far_pad.0, kernel.0, dilation.0)
                    && fits(input.1, pad.1, far_pad.1, kernel.1, dilation.1))
                .then_some(Shape {
                    input: (input.0, input.1, input.2 * 32),
                    channels_out: out * 32,
                    kernel,
                    stride,
                    dilation,
                    pad,
                    far_pad,
                })
            },
        )
}

/// Features in atoms of `c2` channels.
fn feature_index((iw, ih): (usize, usize), c2: usize, c: usize, y: usize, x: usize) -> usize {
    ((c / c2) * iw * ih + y * iw + x) * c2 + c % c2
}

/// Weights: kernel groups of `g`, channel groups of 32.
fn weight_index(shape: &Shape, g: usize, n: usize, c: usize, ky: usize, kx: usize) -> usize {
    let (kw, kh) = shape.kernel;
    ((((n / g) * (shape.input.2 / 32) + c / 32) * kh + ky) * kw + kx) * g * 32
        + (n % g) * 32
        + c % 32
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn int8_to_int32(shape in shapes(), pad in any::<u8>(), seed: u64) {
        let (iw, ih, ic) = shape.input;
        let (ow, oh) = shape.output();
        let taps = shape.kernel.0 * shape.kernel.1;
        let mut numbers = Numbers::new(seed);
        let input = numbers.i8s(iw * ih * ic);
        let weights = numbers.i8s(taps * ic * shape.channels_out);
        let bytes = |v: &[i8]| v.iter().map(|&b| b as u8).collect::<Vec<_>>();
        let mut board = Board::strict(2 << 20);
        let len = ow * oh * shape.channels_out * 4;
        let at = (board.place(&bytes(&input)), board.place(&bytes(&weights)), board.reserve(len));
        let mut conv = shape.base(MatType::Int8Int32, at);
        conv.pad_value = u32::from(pad) * 0x0101_0101;
        board.run(&conv.program()).assert_clean();
        let out = board.bytes(at.2, len);
        for n in 0..shape.channels_out {
            for p in 0..ow * oh {
                let expected = shape.sum(
                    (p / ow, p % ow),
                    0..ic,
                    |c, place| place.map_or(f64::from(pad as i8), |(y, x)| {
                        input[feature_index((iw, ih), 16, c, y, x)].into()
                    }),
                    |c, ky, kx| weights[weight_index(&shape, 32, n, c, ky, kx)].into(),
                );
                let at = ((n / 4) * ow * oh + p) * 16 + (n % 4) * 4;
                let got = i32::from_le_bytes(out[at..at + 4].try_into().unwrap());
                prop_assert_eq!(f64::from(got), expected, "channel {} pixel {}", n, p);
            }
        }
    }

    #[test]
    fn fp16_to_fp32(shape in shapes(), seed: u64) {
        let (iw, ih, ic) = shape.input;
        let (ow, oh) = shape.output();
        let taps = shape.kernel.0 * shape.kernel.1;
        let mut numbers = Numbers::new(seed);
        let input = numbers.f16s(iw * ih * ic);
        let weights = numbers.f16s(taps * ic * shape.channels_out);
        let bytes = |v: &[f16]| v.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>();
        let mut board = Board::strict(2 << 20);
        let len = ow * oh * shape.channels_out * 4;
        let at = (board.place(&bytes(&input)), board.place(&bytes(&weights)), board.reserve(len));
        let conv = shape.base(MatType::Fp16Fp32, at);
        board.run(&conv.program()).assert_clean();
        let out = board.bytes(at.2, len);
        for n in 0..shape.channels_out {
            for p in 0..ow * oh {
                let sum = |absolute: bool| shape.sum(
                    (p / ow, p % ow),
                    0..ic,
                    |c, place| place.map_or(0.0, |(y, x)| {
                        let v = input[feature_index((iw, ih), 8, c, y, x)].to_f64();
                        if absolute { v.abs() } else { v }
                    }),
                    |c, ky, kx| {
                        let v = weights[weight_index(&shape, 16, n, c, ky, kx)].to_f64();
                        if absolute { v.abs() } else { v }
                    },
                );
                let at = ((n / 4) * ow * oh + p) * 16 + (n % 4) * 4;
                let got = f32::from_le_bytes(out[at..at + 4].try_into().unwrap());
                let (exact, magnitude) = (sum(false), sum(true));
                let bound = magnitude * (-20f64).exp2() + exact.abs() * (-24f64).exp2();
                prop_assert!((f64::from(got) - exact).abs() <= bound, "{} for {}", got, exact);
            }
        }
    }

    #[test]
    fn depthwise_fp16_to_fp16(shape in shapes(), seed: u64) {
        let (iw, ih, ic) = shape.input;
        let shape = Shape { channels_out: ic, ..shape };
        let (ow, oh) = shape.output();
        let taps = shape.kernel.0 * shape.kernel.1;
        let mut numbers = Numbers::new(seed);
        let input = numbers.f16s(iw * ih * ic);
        let weights = numbers.f16s(taps * ic);
        let bytes = |v: &[f16]| v.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>();
        let mut board = Board::strict(2 << 20);
        let len = ow * oh * ic * 2;
        let at = (board.place(&bytes(&input)), board.place(&bytes(&weights)), board.reserve(len));
        let mut conv = shape.base(MatType::Fp16Fp16, at);
        depthwise(&mut conv, &shape, 2, ow * oh);
        board.run(&conv.program()).assert_clean();
        let out = board.bytes(at.2, len);
        for c in 0..ic {
            for p in 0..ow * oh {
                let exact = shape.sum(
                    (p / ow, p % ow),
                    c..c + 1,
                    |c, place| place.map_or(0.0, |(y, x)| {
                        input[feature_index((iw, ih), 8, c, y, x)].to_f64()
                    }),
                    |c, ky, kx| weights[((c / 32 * shape.kernel.1 + ky) * shape.kernel.0 + kx) * 32 + c % 32].to_f64(),
                );
                let at = ((c / 8) * ow * oh + p) * 16 + (c % 8) * 2;
                let got = f16::from_le_bytes(out[at..at + 2].try_into().unwrap());
                prop_assert_eq!(got, f16::from_f32(exact as f32), "channel {} pixel {}", c, p);
            }
        }
    }

    #[test]
    fn requantised_int8_with_bias_and_weight_zero_point(
        shape in shapes(),
        weight_offset in -128i16..=128,
        offset in -128i32..128,
        scale in 0x4000u32..0x8000,
        shift in 18u32..28,
        pad: i8,
        seed: u64,
    ) {
        let (iw, ih, ic) = shape.input;
        let (ow, oh) = shape.output();
        let taps = shape.kernel.0 * shape.kernel.1;
        let mut numbers = Numbers::new(seed);
        let input = numbers.i8s(iw * ih * ic);
        let weights = numbers.i8s(taps * ic * shape.channels_out);
        let bias: Vec<i32> = (0..shape.channels_out).map(|_| numbers.int(-100_000, 100_000) as i32).collect();
        let bytes = |v: &[i8]| v.iter().map(|&b| b as u8).collect::<Vec<_>>();
        let mut board = Board::strict(2 << 20);
        let len = ow * oh * shape.channels_out;
        let at = (board.place(&bytes(&input)), board.place(&bytes(&weights)), board.reserve(len));
        let bias_at = board.place(&bias.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>());
        let mut conv = shape.base(MatType::Int8Int32, at);
        conv.po = 0;
        conv.size_e = 1;
        conv.writer.4 = 2 * (ow * oh) as u32;
        conv.qd = 1;
        conv.od_bypass = 0;
        conv.ow_op = u32::from(weight_offset as u16);
        conv.bs_cfg = 0x20150;
        conv.pad_value = u32::from(pad as u8) * 0x0101_0101;
        conv.out_offset = offset as u32;
        conv.out_scale = scale;
        conv.out_shift = shift;
        conv.rdma = Some(Rdma { brdma: 2, bias: bias_at, ..Rdma::default() });
        board.run(&conv.program()).assert_clean();
        let out = board.bytes(at.2, len);
        for n in 0..shape.channels_out {
            for p in 0..ow * oh {
                let sum = shape.sum(
                    (p / ow, p % ow),
                    0..ic,
                    |c, place| place.map_or(pad.into(), |(y, x)| {
                        input[feature_index((iw, ih), 16, c, y, x)].into()
                    }),
                    |c, ky, kx| f64::from(weights[weight_index(&shape, 32, n, c, ky, kx)]) + f64::from(weight_offset),
                ) + f64::from(bias[n]);
                let scaled = (sum * f64::from(scale) / f64::from(1u32 << shift)).round_ties_even();
                let expected = (scaled + f64::from(offset)).clamp(-128.0, 127.0);
                let got = out[((n / 16) * ow * oh + p) * 16 + n % 16] as i8;
                prop_assert_eq!(f64::from(got), expected, "channel {} pixel {}", n, p);
            }
        }
    }
}

/// An int8 convolution of random operands, and its sums with `pad` at each
/// tap that is padding, by channel.
fn padded(shape: &Shape, board: &mut Board, pad: impl Fn(usize) -> i8) -> (Conv, Vec<i32>) {
    let (iw, ih, ic) = shape.input;
    let (ow, oh) = shape.output();
    let mut numbers = Numbers::new(5);
    let input = numbers.i8s(iw * ih * ic);
    let weights = numbers.i8s(shape.kernel.0 * shape.kernel.1 * ic * shape.channels_out);
    let bytes = |v: &[i8]| v.iter().map(|&b| b as u8).collect::<Vec<_>>();
    let at = (
        board.place(&bytes(&input)),
        board.place(&bytes(&weights)),
        board.reserve(ow * oh * shape.channels_out * 4),
    );
    let sums = (0..shape.channels_out * ow * oh).map(|index| {
        let (n, p) = (index / (ow * oh), index % (ow * oh));
        let feature = |c: usize, place: Option<(usize, usize)>| match place {
            None => f64::from(pad(c)),
            Some((y, x)) => input[feature_index((iw, ih), 16, c, y, x)].into(),
        };
        let weight = |c, ky, kx| weights[weight_index(shape, 32, n, c, ky, kx)].into();
        shape.sum((p / ow, p % ow), 0..ic, feature, weight) as i32
    });
    let sums = sums.collect();
    (shape.base(MatType::Int8Int32, at), sums)
}

/// The result as [`padded`] orders it.
fn sums(board: &Board, conv: &Conv) -> Vec<i32> {
    let (ow, oh, channels) = conv.output;
    let pixels = (ow * oh) as usize;
    let bytes = board.bytes(conv.c, pixels * channels as usize * 4);
    let at = |n: usize, p: usize| ((n / 4) * pixels + p) * 16 + (n % 4) * 4;
    let all = (0..channels as usize).flat_map(|n| (0..pixels).map(move |p| at(n, p)));
    all.map(|at| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
        .collect()
}

/// Stride 2, SAME: of an even size, padding is on the right and below only, and
/// no register says so.
#[test]
fn t50_padding_without_pad_registers_takes_the_pattern_too() {
    let same = |input: (usize, usize)| Shape {
        input: (input.0, input.1, 32),
        channels_out: 32,
        kernel: (3, 3),
        stride: (2, 2),
        dilation: (1, 1),
        pad: (0, 0),
        far_pad: (1 - input.0 % 2, 1 - input.1 % 2),
    };
    for (input, pads) in [
        ((8, 8), true),
        ((8, 7), true),
        ((7, 8), true),
        ((7, 7), false),
    ] {
        for value in [0x0000_007e_u32, 0x7e7e_7e7e] {
            let shape = same(input);
            let mut board = Board::strict(1 << 20);
            let (mut conv, expected) = padded(&shape, &mut board, |c| (value >> (c % 2 * 8)) as i8);
            conv.pad_value = value;
            let outcome = board.run(&conv.program());
            assert!(outcome.completed());
            assert_eq!(sums(&board, &conv), expected, "{input:?}, {value:#x}");
            let told = pads && value == 0x7e;
            let trap: &[&str] = if told { &["T50-pad-pattern"] } else { &[] };
            assert_eq!(outcome.traps(), trap, "{input:?}, {value:#x}");

            // What an earlier task left is the pad value of one that pads.
            board.run(&conv.program());
            let mut words = conv.words();
            words.without::<cna::PadCon1>();
            let outcome = board.run(&words.finish(0x0d));
            let stale = outcome
                .diagnosis
                .iter()
                .find(|d| d.trap == "T07-stale-registers");
            let registers = stale.map_or(&[][..], |found| &found.registers);
            let left: &[(&str, u32)] = if pads { &[("PAD_CON1", value)] } else { &[] };
            assert_eq!(registers, left, "{input:?}");
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// Model, lint and definition agree on where there is padding.
    #[test]
    fn t50_the_lint_says_what_the_model_says(shape in shapes()) {
        const UNEVEN: u32 = 0x7e;
        let mut board = Board::strict(2 << 20);
        let met = std::cell::Cell::new(false);
        let (mut conv, expected) = padded(&shape, &mut board, |c| {
            met.set(true);
            (UNEVEN >> (c % 2 * 8)) as i8
        });
        conv.pad_value = UNEVEN;
        let words = conv.program();
        let outcome = board.run(&words);
        prop_assert!(outcome.completed());
        prop_assert_eq!(sums(&board, &conv), expected);
        prop_assert_eq!(outcome.traps().contains(&"T50-pad-pattern"), met.get());
        let findings = lint(&words, &LintContext::default());
        let found = findings.iter().any(|finding| finding.rule.0 == "T50-pad-pattern");
        prop_assert_eq!(found, met.get());
    }
}

/// Turns a direct convolution into a depthwise one of `size`-byte elements.
fn depthwise(conv: &mut Conv, shape: &Shape, size: u32, pixels: usize) {
    let (_, _, ic) = conv.input;
    let taps = (shape.kernel.0 * shape.kernel.1) as u32;
    let group = 64 / size;
    conv.depthwise = true;
    conv.kernels = 1;
    conv.kernel_bytes = taps * ic * size;
    conv.weight_bytes = ic.div_ceil(group) * group * taps * size;
    conv.grains = 50 + shape.stride.1 as u32 + 1;
    conv.size_e = 3;
    conv.writer.4 = 4 * pixels as u32;
    conv.od_bypass = 0;
    conv.ow_op = 0x80;
}
