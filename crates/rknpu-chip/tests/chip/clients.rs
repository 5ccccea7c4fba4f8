// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of other people that ran on silicon, as they write them: few
//! registers, packed pixels, partial groups, operands for each channel.

use half::f16;
use rknpu_chip::{Effect, Level};
use rknpu_regcmd::regs::{cna, dpu, dpu_rdma, pc};
use rknpu_regcmd::{EnableMask, Word};

use super::board::Board;
use super::programs::{Conv, Flying, MatType, Rdma, Words};
use super::tensor::Numbers;
use super::traps::{assert_trap, product};

fn halves(values: &[f32]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes());
    bytes.collect()
}

fn half_at(bytes: &[u8], index: usize) -> f32 {
    f16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
}

/// allbilly's element-wise program on 8 columns: no strides, no writer sizes,
/// no BS, BN and converter; `pointers` or not.
fn allbilly(
    op: u32,
    mode: u32,
    out: Option<u32>,
    pointers: bool,
    at: (u32, u32, u32),
) -> Vec<Word> {
    let mut w = Words::default();
    if pointers {
        w.set::<dpu::SPointer>(0xe).set::<dpu_rdma::SPointer>(0xe);
    }
    w.set::<dpu::FeatureModeCfg>(0x1e5)
        .set::<dpu::DataFormat>(0x4800_0002)
        .set::<dpu::DataCubeWidth>(7)
        .set::<dpu::DataCubeHeight>(0)
        .set::<dpu::DataCubeNotchAddr>(0)
        .set::<dpu::DataCubeChannel>(0x0007_0007)
        .set::<dpu::EwCfg>(op);
    if let Some(out) = out {
        w.set::<dpu::OutCvtScale>(out);
    }
    w.set::<dpu_rdma::DataCubeWidth>(7)
        .set::<dpu_rdma::DataCubeHeight>(0)
        .set::<dpu_rdma::DataCubeChannel>(7)
        .set::<dpu_rdma::ErdmaCfg>(0x4000_0008)
        .set::<dpu::DstBaseAddr>(at.2)
        .set::<dpu_rdma::SrcBaseAddr>(at.0)
        .set::<dpu_rdma::EwBaseAddr>(at.1)
        .set::<dpu_rdma::FeatureModeCfg>(mode);
    w.0.push(Word::enable(EnableMask::from_bits_retain(0x18)));
    w.0
}

fn operands(board: &mut Board) -> (Vec<f32>, Vec<f32>, (u32, u32, u32)) {
    let a: Vec<f32> = (0..64).map(|i| i as f32 - 20.0).collect();
    let b: Vec<f32> = (0..64).map(|i| 0.5 + (i % 7) as f32).collect();
    let at = (
        board.place(&halves(&a)),
        board.place(&halves(&b)),
        board.reserve(128),
    );
    (a, b, at)
}

#[test]
fn elementwise_programs_of_seventeen_words() {
    type Op = fn(f32, f32) -> f32;
    let ops: [(u32, u32, u32, Op); 4] = [
        (0x1082_02c0, 0x17849, 0x10001, |a, b| a + b),
        (0x1084_02c0, 0x17849, 0x10001, |a, b| a - b),
        (0x1080_03c4, 0x17849, 0x10001, |a, b| a * b),
        (0x1083_03c0, 0x17841, 1, |a, b| a / b),
    ];
    for (op, mode, out, expected) in ops {
        let mut board = Board::strict(1 << 16);
        let (a, b, at) = operands(&mut board);
        board
            .run(&allbilly(op, mode, Some(out), true, at))
            .assert_clean();
        let got = board.bytes(at.2, 128);
        for i in 0..64 {
            let want = f16::from_f32(expected(a[i], b[i])).to_f32();
            assert_eq!(half_at(&got, i), want, "{op:#x}, element {i}");
        }
    }
}

#[test]
fn an_addition_without_pointers_and_converter_works_and_is_noted() {
    let mut board = Board::strict(1 << 16);
    let (a, b, at) = operands(&mut board);
    let outcome = board.run(&allbilly(0x1082_02c0, 0x17849, None, false, at));
    assert!(outcome.completed());
    assert_trap(&outcome, "T05-no-pointer-flying", Effect::Note);
    let got = board.bytes(at.2, 128);
    assert!((0..64).all(|i| half_at(&got, i) == f16::from_f32(a[i] + b[i]).to_f32()));
}

#[test]
fn an_addition_after_a_convolution_has_its_own_channels() {
    let mut first = product(MatType::Fp16Fp16, (8, 32, 64), Level::Strict);
    first.board.run(&first.conv.program()).assert_clean();
    let (a, b, at) = operands(&mut first.board);
    let words = allbilly(0x1082_02c0, 0x17849, Some(0x10001), true, at);
    first.board.run(&words).assert_clean();
    let got = first.board.bytes(at.2, 128);
    assert!((0..64).all(|i| half_at(&got, i) == f16::from_f32(a[i] + b[i]).to_f32()));
}

#[test]
fn a_sum_that_stays_fp32_is_not_converted() {
    let mut right = product(MatType::Fp16Fp32, (4, 32, 16), Level::Strict);
    right.board.run(&right.conv.program()).assert_clean();
    let mut zero = product(MatType::Fp16Fp32, (4, 32, 16), Level::Strict);
    let mut words = zero.conv.words();
    words.patch::<dpu::OutCvtScale>(0);
    zero.board.run(&words.finish(0x0d)).assert_clean();
    assert_eq!(zero.out(), right.out());
}

/// A depthwise 3 x 3 program of `channels` on a `side` square, without
/// padding; weights as given.
fn depthwise(board: &mut Board, channels: u32, side: u32, x: &[u8], w: &[u8]) -> Conv {
    let out = side - 2;
    let mut conv = MatType::Fp16Fp16.matmul(4, 32, 16, (board.place(x), board.place(w), 0));
    conv.c = board.reserve((out * out) as usize * 32 * 8);
    conv.depthwise = true;
    conv.input = (side, side, channels);
    conv.output = (out, out, channels.next_multiple_of(32));
    conv.kernel = (3, 3);
    conv.kernels = 1;
    conv.weight_bytes = w.len() as u32;
    conv.kernel_bytes = w.len() as u32;
    conv.grains = side + 1;
    conv.entries = (side * channels).div_ceil(32);
    conv.data_banks = (side * conv.entries * 64).div_ceil(32768);
    conv.line_stride = 4 * side;
    conv.surf_stride = (side * (side - 4)) as i32;
    conv.size_e = 3;
    conv.writer = (out, out, out * out, 0, 4 * out * out);
    conv
}

#[test]
fn the_last_group_of_depthwise_weights_is_dense() {
    for channels in [8usize, 32, 40] {
        let side = 6usize;
        let mut numbers = Numbers::new(channels as u64);
        let mut small = |len: usize| -> Vec<f32> {
            (0..len).map(|_| numbers.int(-8, 8) as f32 / 4.0).collect()
        };
        let (x, w) = (small(channels * side * side), small(channels * 9));
        let mut cube = vec![0.0; x.len()];
        for c in 0..channels {
            for p in 0..side * side {
                cube[(c / 8 * side * side + p) * 8 + c % 8] = x[c * side * side + p];
            }
        }
        let mut stream = Vec::new();
        for first in (0..channels).step_by(32) {
            for tap in 0..9 {
                stream.extend((first..channels.min(first + 32)).map(|c| w[c * 9 + tap]));
            }
        }
        let mut board = Board::strict(1 << 20);
        let conv = depthwise(
            &mut board,
            channels as u32,
            side as u32,
            &halves(&cube),
            &halves(&stream),
        );
        board.run(&conv.program()).assert_clean();
        let out = side - 2;
        let got = board.bytes(conv.c, out * out * channels.next_multiple_of(8) * 2);
        for c in 0..channels {
            for (y, x0) in (0..out).flat_map(|y| (0..out).map(move |x| (y, x))) {
                let sum: f32 = (0..9)
                    .map(|tap| {
                        let at = (y + tap / 3) * side + x0 + tap % 3;
                        x[c * side * side + at] * w[c * 9 + tap]
                    })
                    .sum();
                let at = (c / 8 * out * out + y * out + x0) * 8 + c % 8;
                assert_eq!(
                    half_at(&got, at),
                    sum,
                    "{channels} channels: {c} at {y}, {x0}"
                );
            }
        }
    }
}

#[test]
fn fp16_pixels_of_three_channels() {
    let (iw, ih) = (8usize, 5usize);
    let mut numbers = Numbers::new(9);
    let mut small =
        |len: usize| -> Vec<f32> { (0..len).map(|_| numbers.int(-8, 8) as f32 / 4.0).collect() };
    let (x, w) = (small(3 * iw * ih), small(16 * 3));
    let stream: Vec<f32> = (0..16)
        .flat_map(|n| (0..8).map(move |c| (n, c)))
        .map(|(n, c)| if c < 3 { w[n * 3 + c] } else { 0.0 })
        .collect();
    let mut board = Board::strict(1 << 20);
    let at = (board.place(&halves(&x)), board.place(&halves(&stream)));
    let mut conv = MatType::Fp16Fp16.matmul(4, 32, 16, (at.0, at.1, 0));
    conv.c = board.reserve(iw * ih * 32);
    conv.input = (iw as u32, ih as u32, 8);
    conv.output = (iw as u32, ih as u32, 16);
    conv.weight_bytes = 16 * 16;
    conv.kernel_bytes = 16;
    conv.entries = 10;
    conv.line_stride = iw as u32;
    conv.surf_stride = (iw * (ih - 1)) as i32;
    conv.grains = 6;
    let pixels = (iw * ih) as u32;
    conv.writer = (iw as u32, ih as u32, pixels, 0, 2 * pixels);
    let mut words = conv.words();
    words.patch::<cna::ConvCon1>(0x6000_a120);
    words.patch::<cna::DataSize1>(2 << 16 | 8);
    words.patch::<cna::CvtCon5>(7);
    board.run(&words.finish(0x0d)).assert_clean();
    let got = board.bytes(conv.c, iw * ih * 32);
    for n in 0..16 {
        for p in 0..iw * ih {
            let sum: f32 = (0..3).map(|c| x[p * 3 + c] * w[n * 3 + c]).sum();
            let at = (n / 8 * iw * ih + p) * 8 + n % 8;
            assert_eq!(half_at(&got, at), sum, "channel {n}, pixel {p}");
        }
    }
}

#[test]
fn a_scale_and_a_bias_for_each_channel() {
    let (m, n) = (4usize, 32usize);
    let mut plain = product(MatType::Int8Int32, (m, 64, n), Level::Strict);
    plain.board.run(&plain.conv.program()).assert_clean();
    let sums = plain.out();
    let mut scaled = product(MatType::Int8Int32, (m, 64, n), Level::Strict);
    let bias: Vec<i32> = (0..n as i32).map(|i| i * 1100 - 9000).collect();
    let scale: Vec<i16> = (0..n as i16).map(|i| i * 97 - 1000).collect();
    // 8 channels: int32 bias, int16 unused, int16 scale.
    let mut operands = vec![0; n / 8 * 64];
    for c in 0..n {
        let (group, lane) = (c / 8 * 64, c % 8);
        operands[group + lane * 4..][..4].copy_from_slice(&bias[c].to_le_bytes());
        operands[group + 48 + lane * 2..][..2].copy_from_slice(&scale[c].to_le_bytes());
    }
    let (shift, negative) = (6u32, 4u32);
    scaled.conv.rdma = Some(Rdma {
        brdma: 0xe,
        bias: scaled.board.place(&operands),
        ..Rdma::default()
    });
    let mut words = scaled.conv.words();
    words.patch::<dpu::BsCfg>(0x20140);
    words.patch::<dpu::BsMulCfg>(shift << 8 | 1);
    words.patch::<dpu::DataFormat>(0x8000_0000 | negative << 4);
    scaled.board.run(&words.finish(0x1d)).assert_clean();
    let got = scaled.out();
    let int = |bytes: &[u8], at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    for (row, c) in (0..m).flat_map(|row| (0..n).map(move |c| (row, c))) {
        let at = (c / 4 * m + row) * 16 + c % 4 * 4;
        let product = (i64::from(int(&sums, at)) + i64::from(bias[c])) * i64::from(scale[c]);
        let bits = if product < 0 { negative } else { shift };
        // Below 2^53: the quotient is exact, and so is its rounding.
        let want = (product as f64 / f64::from(1 << bits)).round_ties_even();
        assert_eq!(f64::from(int(&got, at)), want, "row {row}, channel {c}");
    }
}

#[test]
fn a_transposed_convolution_spreads_its_input() {
    // 4 x 4 spread by 2 under a 3 x 3 kernel with a padding of 2: 9 x 9.
    let (side, out, spread) = (4usize, 9usize, 2usize);
    let mut numbers = Numbers::new(4);
    let mut small =
        |len: usize| -> Vec<f32> { (0..len).map(|_| numbers.int(-4, 4) as f32).collect() };
    let (x, w) = (small(side * side * 32), small(16 * 9 * 32));
    let mut board = Board::strict(1 << 20);
    // Cube: (c/8, pixel, c%8); weights: (tap, kernel, c) of one group each.
    let cube: Vec<f32> = (0..4)
        .flat_map(|c1| (0..side * side).map(move |p| (c1, p)))
        .flat_map(|(c1, p)| (0..8).map(move |c| p * 32 + c1 * 8 + c))
        .map(|at| x[at])
        .collect();
    let stream: Vec<f32> = (0..9)
        .flat_map(|tap| (0..16).map(move |n| (tap, n)))
        .flat_map(|(tap, n)| (0..32).map(move |c| (n * 9 + tap) * 32 + c))
        .map(|at| w[at])
        .collect();
    let at = (board.place(&halves(&cube)), board.place(&halves(&stream)));
    let mut conv = MatType::Fp16Fp32.matmul(4, 32, 16, (at.0, at.1, 0));
    conv.c = board.reserve(out * out * 64);
    conv.input = (side as u32, side as u32, 32);
    conv.output = (out as u32, out as u32, 16);
    conv.kernel = (3, 3);
    conv.weight_bytes = 16 * 9 * 64;
    conv.kernel_bytes = 9 * 64;
    conv.entries = 4;
    conv.pad = (2, 2);
    conv.line_stride = 16;
    conv.surf_stride = 0;
    let pixels = (out * out) as u32;
    conv.writer = (out as u32, out as u32, pixels, 0, 4 * pixels);
    let mut words = conv.words();
    words.patch::<cna::ConvCon1>(1 << 16 | 0x120);
    words.patch::<cna::ConvCon3>(1 << 11 | 1 << 8 | 9);
    board.run(&words.finish(0x0d)).assert_clean();
    let got = board.bytes(conv.c, out * out * 64);
    for (n, y, x0) in (0..16)
        .flat_map(|n| (0..out).map(move |y| (n, y)))
        .flat_map(|(n, y)| (0..out).map(move |x| (n, y, x)))
    {
        let mut sum = 0.0;
        for tap in 0..9 {
            let (sy, sx) = ((y + tap / 3) as i64 - 2, (x0 + tap % 3) as i64 - 2);
            let on = |v: i64| v >= 0 && v % 2 == 0 && (v as usize / spread) < side;
            if on(sy) && on(sx) {
                let pixel = sy as usize / spread * side + sx as usize / spread;
                sum += (0..32)
                    .map(|c| x[pixel * 32 + c] * w[(n * 9 + tap) * 32 + c])
                    .sum::<f32>();
            }
        }
        let at = (n / 4 * out * out + y * out + x0) * 16 + n % 4 * 4;
        let value = f32::from_le_bytes(got[at..at + 4].try_into().unwrap());
        assert_eq!(value, sum, "channel {n} at {y}, {x0}");
    }
}

#[test]
fn int32_products_take_sixteen_bits_of_the_operand() {
    let mut board = Board::strict(1 << 16);
    let (x, y) = (100i32, 70_000i32);
    let place = |board: &mut Board, v: i32| board.place(&v.to_le_bytes().repeat(128));
    let at = (place(&mut board, x), place(&mut board, y));
    let d = board.reserve(512);
    let mut multiply = Flying::int32_add(4, 32, (at.0, at.1, d));
    multiply.ew_cfg = 0x10c0_03c4;
    board.run(&multiply.program()).assert_clean();
    let got = i32::from_le_bytes(board.bytes(d, 4).try_into().unwrap());
    assert_eq!(got, x * i32::from(y as i16));
}

#[test]
fn flying_operands_that_silicon_was_measured_to_spoil() {
    // ORIG_CHANNEL 0: one lane of eight is right.
    let mut board = Board::new(1 << 16);
    let (a, b, at) = operands(&mut board);
    let mut words = Flying::fp16(8, 0x1082_02c0, at).words();
    words.patch::<dpu::DataCubeChannel>(7);
    let outcome = board.run(&words.finish(0x18));
    assert!(outcome.completed());
    assert_trap(&outcome, "T48-orig-channel", Effect::Garbage);
    let got = board.bytes(at.2, 128);
    for i in 0..64 {
        let right = half_at(&got, i) == f16::from_f32(a[i] + b[i]).to_f32();
        assert_eq!(right, i % 8 == 0 || a[i] + b[i] == 0.0, "element {i}");
    }
    // A multiplication with the operand converter on.
    let outcome = board.run(&Flying::fp16(8, 0x1080_02c4, at).program());
    assert_eq!(outcome.raw_status, 0);
    assert_trap(&outcome, "T47-converted-product", Effect::Hang);
    // The trailer of a client that links to nowhere ends the task as any.
    let mut words = Flying::fp16(8, 0x1080_03c4, at).words();
    words.set::<pc::BaseAddress>(0);
    board.run(&words.finish(0x18)).assert_clean();
}
