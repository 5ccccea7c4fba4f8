// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares convolutions with their definition.

use families::conv::ConvProgram;
use families::matmul::{FP16_FP16, FP16_FP32, INT8_INT32, OperandTypes};
use proptest::prelude::*;
use rknpu_regcmd::regs::cna;
use rknpu_regcmd::{LintContext, lint};

use super::board::Board;
use super::tensor::{Numbers, check, cube_index, half_at, per_atom, put, weight_index};

/// A convolution. Pairs are (across, down).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) input: (usize, usize, usize),
    pub(crate) channels_out: usize,
    pub(crate) kernel: (usize, usize),
    pub(crate) stride: (usize, usize),
    pub(crate) dilation: (usize, usize),
    pub(crate) pad: (usize, usize),
    /// Padding on the right and below, which no register holds.
    pub(crate) far_pad: (usize, usize),
    /// Distances of the pixels of the input, with zeros between them.
    pub(crate) spread: (usize, usize),
}

impl Shape {
    /// Stride 1, without padding.
    pub(crate) fn plain(
        input: (usize, usize, usize),
        channels_out: usize,
        kernel: (usize, usize),
    ) -> Self {
        Self {
            input,
            channels_out,
            kernel,
            stride: (1, 1),
            dilation: (1, 1),
            pad: (0, 0),
            far_pad: (0, 0),
            spread: (1, 1),
        }
    }

    pub(crate) fn output(&self) -> (usize, usize) {
        let one = |size: usize, spread, pad, kernel: usize, dilation, stride| {
            ((size - 1) * spread + pad - dilation * (kernel - 1)) / stride + 1
        };
        let (k, s, d, spread) = (self.kernel, self.stride, self.dilation, self.spread);
        let (pad, far) = (self.pad, self.far_pad);
        (
            one(self.input.0, spread.0, pad.0 + far.0, k.0, d.0, s.0),
            one(self.input.1, spread.1, pad.1 + far.1, k.1, d.1, s.1),
        )
    }

    pub(crate) fn pixels(&self) -> usize {
        self.output().0 * self.output().1
    }

    fn taps(&self) -> usize {
        self.kernel.0 * self.kernel.1
    }

    /// Line and column of the input under a tap of a pixel, or `None` for
    /// padding and gaps.
    fn under(&self, pixel: usize, tap: usize) -> Option<(usize, usize)> {
        let place = |at: usize, pad, size, spread| {
            let at = at.checked_sub(pad)?;
            (at % spread == 0 && at / spread < size).then_some(at / spread)
        };
        let (ow, (kw, _)) = (self.output().0, self.kernel);
        let down = pixel / ow * self.stride.1 + tap / kw * self.dilation.1;
        let across = pixel % ow * self.stride.0 + tap % kw * self.dilation.0;
        let y = place(down, self.pad.1, self.input.1, self.spread.1)?;
        let x = place(across, self.pad.0, self.input.0, self.spread.0)?;
        Some((y, x))
    }
}

/// Random operands of a convolution.
pub(crate) struct Tensors {
    pub(crate) shape: Shape,
    pub(crate) depthwise: bool,
    /// By channel, line and column.
    pub(crate) input: Vec<f64>,
    /// By kernel, channel and tap.
    pub(crate) weights: Vec<f64>,
}

impl Tensors {
    /// Places random operands. Returns them, the program that convolves them, and
    /// the number of bytes of its result.
    pub(crate) fn place(
        board: &mut Board,
        shape: &Shape,
        ty: OperandTypes,
        depthwise: bool,
        seed: u64,
    ) -> (Self, ConvProgram, usize) {
        let mut numbers = Numbers::new(seed);
        let tensors = Self::new(shape, depthwise, |len| numbers.values(ty, len));
        let written = shape.channels_out.next_multiple_of(ty.group as usize);
        let len = shape.pixels() * written * ty.out_bytes();
        let conv = tensors.conv(board, ty, len);
        (tensors, conv, len)
    }

    /// Operands of numbers of `values`.
    pub(crate) fn new(
        shape: &Shape,
        depthwise: bool,
        mut values: impl FnMut(usize) -> Vec<f64>,
    ) -> Self {
        let (iw, ih, ic) = shape.input;
        let kernels = if depthwise { 1 } else { shape.channels_out };
        Self {
            shape: *shape,
            depthwise,
            input: values(iw * ih * ic),
            weights: values(kernels * ic * shape.taps()),
        }
    }

    /// Places the operands and `len` bytes for the result. Returns the program.
    pub(crate) fn conv(&self, board: &mut Board, ty: OperandTypes, len: usize) -> ConvProgram {
        let shape = &self.shape;
        let (iw, ih, ic) = shape.input;
        let atoms = ic.div_ceil(per_atom(ty));
        let mut cube = vec![0; atoms * iw * ih * 16];
        for (i, &value) in self.input.iter().enumerate() {
            let (c, pixel) = (i / (iw * ih), i % (iw * ih));
            let at = cube_index(per_atom(ty), iw * ih, pixel, c);
            put(ty, &mut cube, at, value);
        }
        let at = (
            board.place(&cube),
            board.place(&self.stream(ty)),
            board.reserve(len),
        );
        let pair = |(x, y): (usize, usize)| (x as u32, y as u32);
        let size = |(x, y): (usize, usize), c: usize| (x as u32, y as u32, c as u32);
        let output = size(shape.output(), shape.channels_out);
        let mut conv = ty.conv(size((iw, ih), ic), output, pair(shape.kernel), at);
        conv.stride = pair(shape.stride);
        conv.dilation = pair(shape.dilation);
        conv.pad = pair(shape.pad);
        if self.depthwise {
            conv = conv.depthwise(ty.bytes(self.weights.len()) as u32);
        }
        conv
    }

    /// The weights as they lie in memory.
    pub(crate) fn stream(&self, ty: OperandTypes) -> Vec<u8> {
        let (ic, taps) = (self.shape.input.2, self.shape.taps());
        let mut stream = vec![0; ty.bytes(self.weights.len())];
        for (i, &value) in self.weights.iter().enumerate() {
            let (n, c, tap) = (i / taps / ic, i / taps % ic, i % taps);
            let at = if self.depthwise {
                // Channel groups of 64 bytes, of which the last is dense.
                let group = 4 * per_atom(ty);
                let first = c / group * group;
                first * taps + tap * group.min(ic - first) + c % group
            } else {
                weight_index(ty, (ic, taps), n, (c, tap))
            };
            put(ty, &mut stream, at, value);
        }
        stream
    }

    /// The sum for one output, and the sum of magnitudes. `pad` is the padding
    /// of a channel; `offset` is added to each weight.
    pub(crate) fn sum(
        &self,
        n: usize,
        pixel: usize,
        pad: impl Fn(usize) -> f64,
        offset: f64,
    ) -> (f64, f64) {
        let (iw, ih, ic) = self.shape.input;
        let (channels, kernel) = if self.depthwise {
            (n..n + 1, 0)
        } else {
            (0..ic, n)
        };
        let mut sums = (0.0, 0.0);
        for c in channels {
            for tap in 0..self.shape.taps() {
                let value = match self.shape.under(pixel, tap) {
                    Some((y, x)) => self.input[(c * ih + y) * iw + x],
                    None => pad(c),
                };
                let weight = self.weights[(kernel * ic + c) * self.shape.taps() + tap];
                let product = value * (weight + offset);
                sums = (sums.0 + product, sums.1 + product.abs());
            }
        }
        sums
    }

    /// Checks every result. `pad` is the padding of a channel.
    #[track_caller]
    pub(crate) fn assert_sums(&self, ty: OperandTypes, out: &[u8], pad: impl Fn(usize) -> f64) {
        for (n, p) in self.outputs() {
            let place = format!("channel {n}, pixel {p} of {:?}", self.shape);
            let at = self.place_of(n, p, ty.out_bytes());
            check(ty, out, at, self.sum(n, p, &pad, 0.0), &place);
        }
    }

    /// Checks that every fp16 result is the exact sum, rounded once.
    #[track_caller]
    pub(crate) fn assert_halves(&self, out: &[u8]) {
        for (n, p) in self.outputs() {
            let exact = half::f16::from_f64(self.sum(n, p, |_| 0.0, 0.0).0).to_f32();
            let got = half_at(out, self.place_of(n, p, 2));
            assert_eq!(got, exact, "channel {n}, pixel {p} of {:?}", self.shape);
        }
    }

    /// Index in the result of channel `n` of a pixel, for elements of `bytes`.
    pub(crate) fn place_of(&self, n: usize, pixel: usize, bytes: usize) -> usize {
        cube_index(16 / bytes, self.shape.pixels(), pixel, n)
    }

    /// All channels and pixels.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let pixels = self.shape.pixels();
        (0..self.shape.channels_out).flat_map(move |n| (0..pixels).map(move |p| (n, p)))
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let pair = |first: usize, end: usize| (first..end, first..end);
    let padding = (pair(0, 3), pair(0, 3));
    let size = (1usize..10, 1usize..10, 1usize..3);
    let windows = (pair(1, 4), pair(1, 4), pair(1, 3));
    (size, 1usize..3, windows, padding).prop_filter_map(
        "the kernel fits the padded input",
        |((w, h, channels), out, (kernel, stride, dilation), (pad, far_pad))| {
            let fits = |size, k: usize, d| size > d * (k - 1);
            // FEATURE_GRAINS is the height + 1, and must hold a window.
            (fits(w + pad.0 + far_pad.0, kernel.0, dilation.0)
                && fits(h + pad.1 + far_pad.1, kernel.1, dilation.1))
            .then_some(Shape {
                stride,
                dilation,
                pad,
                far_pad,
                ..Shape::plain((w, h, channels * 32), out * 32, kernel)
            })
        },
    )
}

/// Checks every result of a direct convolution. PAD_CON1 is `pattern`, which
/// stands for `pad`.
fn assert_sums(shape: &Shape, ty: OperandTypes, pattern: u32, pad: f64, seed: u64) {
    let mut board = Board::strict(2 << 20);
    let (tensors, mut conv, len) = Tensors::place(&mut board, shape, ty, false, seed);
    conv.pad_value = pattern;
    board.run(&conv.task()).assert_clean();
    tensors.assert_sums(ty, &board.bytes(conv.c, len), |_| pad);
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn int8_to_int32(shape in shapes(), pad: i8, seed: u64) {
        let pattern = u32::from(pad as u8) * 0x0101_0101;
        assert_sums(&shape, INT8_INT32, pattern, pad.into(), seed);
    }

    #[test]
    fn fp16_to_fp32(shape in shapes(), pad: i8, seed: u64) {
        let pad = half::f16::from(pad);
        assert_sums(&shape, FP16_FP32, pad.to_bits().into(), pad.into(), seed);
    }

    #[test]
    fn depthwise_fp16_to_fp16(shape in shapes(), seed: u64) {
        let shape = Shape { channels_out: shape.input.2, ..shape };
        let mut board = Board::strict(2 << 20);
        let (tensors, conv, len) = Tensors::place(&mut board, &shape, FP16_FP16, true, seed);
        board.run(&conv.task()).assert_clean();
        tensors.assert_halves(&board.bytes(conv.c, len));
    }
}

/// A cube of which only a band of lines is held at a time gives the results of its
/// halves, which are held whole.
#[test]
fn features_larger_than_a_band() {
    for ty in [INT8_INT32, FP16_FP32] {
        let mut board = Board::new(1 << 20);
        let mut numbers = Numbers::new(5);
        let mut bytes = |len| (0..len).map(|_| numbers.next() as u8).collect::<Vec<u8>>();
        let a = board.place(&bytes(1 << 16));
        let b = board.place(&bytes(ty.bytes(2 * 3 * 32 * 64)));
        // Lines overlap in memory, and stream through their banks.
        let mut run = |first: u32, height: u32| {
            let len = (3 * height / 4 * 64 * 4) as usize;
            let at = (a + first / 4 * 9 * 16, b, board.reserve(len));
            let mut conv = ty.conv((512, height, 32), (3, height / 4, 64), (2, 3), at);
            conv.stride = (2, 4);
            conv.data_banks = 5;
            conv.grains = 8;
            conv.line_stride = 9;
            conv.surf_stride = 70 - 4 * 512;
            let outcome = board.run(&conv.task());
            assert!(outcome.completed(), "{:#?}", outcome.diagnosis);
            // CBUF does not hold all of these features for reuse.
            let reuse = ConvProgram {
                data_reuse: true,
                c: board.reserve(len),
                ..conv
            };
            let outcome = board.run(&reuse.task());
            assert!(outcome.traps().contains(&"T29-stale-cbuf"));
            board.bytes(at.2, len)
        };
        let half = 448 / 2 * 8 / ty.bits;
        let whole = run(0, 2 * half);
        let halves = [run(0, half), run(half, half)];
        let surface = whole.len() / 16;
        for (number, whole) in whole.chunks(surface).enumerate() {
            let parts = halves
                .each_ref()
                .map(|out| &out[number * surface / 2..][..surface / 2]);
            assert_eq!(whole, parts.concat(), "surface {number}");
        }
    }
}

/// The padding of channel `c`: the two bytes of `pattern` in turn.
fn padding(pattern: u32, c: usize) -> f64 {
    f64::from((pattern >> (c % 2 * 8)) as i8)
}

/// Stride 2, SAME: an even size has padding only on the right and below, which
/// no register holds.
#[test]
fn t50_padding_without_pad_registers_takes_the_pattern_too() {
    for (w, h) in [(8, 8), (8, 7), (7, 8), (7, 7)] {
        let shape = Shape {
            stride: (2, 2),
            far_pad: (1 - w % 2, 1 - h % 2),
            ..Shape::plain((w, h, 32), 32, (3, 3))
        };
        let pads = (w, h) != (7, 7);
        for value in [0x0000_007e_u32, 0x7e7e_7e7e] {
            let mut board = Board::strict(1 << 20);
            let (tensors, mut conv, len) = Tensors::place(&mut board, &shape, INT8_INT32, false, 5);
            conv.pad_value = value;
            let outcome = board.run(&conv.task());
            assert!(outcome.completed());
            tensors.assert_sums(INT8_INT32, &board.bytes(conv.c, len), |c| padding(value, c));
            let told = pads && value == 0x7e;
            let trap: &[&str] = if told { &["T50-pad-pattern"] } else { &[] };
            assert_eq!(outcome.traps(), trap, "{shape:?}, {value:#x}");

            // Without PAD_CON1 a task pads with an earlier task's value.
            board.run(&conv.task());
            let mut words = conv.words();
            words.remove(cna::PadCon1::OFFSET);
            let outcome = board.run(&words.finish(families::CONV));
            let mut told = outcome.diagnosis.iter();
            let stale = told.find(|d| d.trap == "T07-stale-registers");
            let registers = stale.map_or(&[][..], |found| &found.registers);
            let left: &[(&str, u32)] = if pads { &[("PAD_CON1", value)] } else { &[] };
            assert_eq!(registers, left, "{shape:?}");
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
        let (tensors, mut conv, len) = Tensors::place(&mut board, &shape, INT8_INT32, false, 5);
        conv.pad_value = UNEVEN;
        let words = conv.task();
        let outcome = board.run(&words);
        prop_assert!(outcome.completed());
        let met = std::cell::Cell::new(false);
        tensors.assert_sums(INT8_INT32, &board.bytes(conv.c, len), |c| {
            met.set(true);
            padding(UNEVEN, c)
        });
        prop_assert_eq!(outcome.traps().contains(&"T50-pad-pattern"), met.get());
        let findings = lint(&words, &LintContext::default());
        let found = findings.iter().any(|finding| finding.rule == "T50-pad-pattern");
        prop_assert_eq!(found, met.get());
    }
}
