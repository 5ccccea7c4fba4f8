// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs by others that ran on silicon, as written: few registers, packed
//! pixels, partial groups, operands for each channel.

use half::f16;
use rknpu_chip::{Effect, Level};
use rknpu_regcmd::regs::{cna, dpu, dpu_rdma};
use rknpu_regcmd::{EnableMask, Word};

use super::board::Board;
use super::board_matmul::{BoardMatmul, assert_trap};
use super::convolution::{Shape, Tensors};
use super::tensor::{Numbers, cube_index, half_at, halves, word_at};
use families::conv::Rdma;
use families::flying::Flying;
use families::matmul::{FP16_FP16, FP16_FP32, INT8_INT32};
use families::{CONV, CONV_RDMA, FLYING, Words};

/// allbilly's element-wise program on 8 columns: no strides, no writer sizes,
/// no BS, BN and converter. It writes S_POINTER only with `pointers`.
pub(crate) fn allbilly(
    op: u32,
    mode: u32,
    out: Option<u32>,
    pointers: bool,
    at: (u32, u32, u32),
) -> Vec<Word> {
    let mut words = Words::default();
    if pointers {
        words.extend(&[
            (dpu::SPointer::OFFSET, 0xe),
            (dpu_rdma::SPointer::OFFSET, 0xe),
        ]);
    }
    words.extend(&[
        (dpu::FeatureModeCfg::OFFSET, 0x1e5),
        (dpu::DataFormat::OFFSET, 0x4800_0002),
        (dpu::DataCubeWidth::OFFSET, 7),
        (dpu::DataCubeHeight::OFFSET, 0),
        (dpu::DataCubeNotchAddr::OFFSET, 0),
        (dpu::DataCubeChannel::OFFSET, 0x0007_0007),
        (dpu::EwCfg::OFFSET, op),
    ]);
    words.extend(out.map(|out| (dpu::OutCvtScale::OFFSET, out)).as_slice());
    words.extend(&[
        (dpu_rdma::DataCubeWidth::OFFSET, 7),
        (dpu_rdma::DataCubeHeight::OFFSET, 0),
        (dpu_rdma::DataCubeChannel::OFFSET, 7),
        (dpu_rdma::ErdmaCfg::OFFSET, 0x4000_0008),
        (dpu::DstBaseAddr::OFFSET, at.2),
        (dpu_rdma::SrcBaseAddr::OFFSET, at.0),
        (dpu_rdma::EwBaseAddr::OFFSET, at.1),
        (dpu_rdma::FeatureModeCfg::OFFSET, mode),
    ]);
    let enable = Word::enable(EnableMask::from_bits_retain(FLYING));
    words.0.push(enable);
    words.0
}

/// Bytes of each of [`operands`] and of the result.
pub(crate) const BYTES: usize = 128;

pub(crate) fn operands(board: &mut Board) -> (Vec<f32>, Vec<f32>, (u32, u32, u32)) {
    let a: Vec<f32> = (0..64).map(|i| i as f32 - 20.0).collect();
    let b: Vec<f32> = (0..64).map(|i| 0.5 + (i % 7) as f32).collect();
    let at = (
        board.place(&halves(&a)),
        board.place(&halves(&b)),
        board.reserve(BYTES),
    );
    (a, b, at)
}

#[test]
fn an_addition_without_pointers_and_converter_works_and_is_noted() {
    let mut board = Board::strict(1 << 16);
    let (a, b, at) = operands(&mut board);
    let outcome = board.run(&allbilly(0x1082_02c0, 0x17849, None, false, at));
    assert_trap(&outcome, "T05-no-pointer-flying", Effect::Note);
    assert_added(&board, &a, &b, at.2);
}

/// Checks the result of an addition of such operands.
fn assert_added(board: &Board, a: &[f32], b: &[f32], at: u32) {
    let sums: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
    assert_eq!(board.bytes(at, 128), halves(&sums));
}

#[test]
fn an_addition_after_a_convolution_has_its_own_channels() {
    let mut first = BoardMatmul::new(FP16_FP16, (8, 32, 64), Level::Strict);
    first.run().assert_clean();
    let (a, b, at) = operands(&mut first.board);
    let words = allbilly(0x1082_02c0, 0x17849, Some(0x10001), true, at);
    first.board.run(&words).assert_clean();
    assert_added(&first.board, &a, &b, at.2);
}

#[test]
fn a_sum_that_stays_fp32_is_not_converted() {
    let mut matmul = BoardMatmul::new(FP16_FP32, (4, 32, 16), Level::Strict);
    matmul.conv.out_scale = 0;
    matmul.run().assert_clean();
    matmul.verify();
}

#[test]
fn the_last_group_of_depthwise_weights_is_dense() {
    for channels in [8, 32, 40] {
        let shape = Shape::plain((6, 6, channels), channels, (3, 3));
        let mut board = Board::strict(1 << 20);
        let (tensors, mut conv, _) = Tensors::place(&mut board, &shape, FP16_FP16, true, 3);
        conv.output.2 = conv.output.2.next_multiple_of(32);
        conv.c = board.reserve(shape.pixels() * 32 * 8);
        board.run(&conv.task()).assert_clean();
        let got = board.bytes(conv.c, shape.pixels() * channels.next_multiple_of(8) * 2);
        tensors.assert_halves(&got);
    }
}

#[test]
fn fp16_pixels_of_three_channels() {
    let (iw, ih) = (8usize, 5usize);
    let mut numbers = Numbers::new(9);
    let x = numbers.fractions(3 * iw * ih, (-8, 8), 2);
    let w = numbers.fractions(16 * 3, (-8, 8), 2);
    let mut stream = [0.0; 16 * 8];
    for (kernel, w) in stream.chunks_exact_mut(8).zip(w.chunks_exact(3)) {
        kernel[..3].copy_from_slice(w);
    }
    let mut board = Board::strict(1 << 20);
    let at = (board.place(&halves(&x)), board.place(&halves(&stream)));
    let at = (at.0, at.1, board.reserve(iw * ih * 32));
    let mut conv = FP16_FP16.conv((8, 5, 8), (8, 5, 16), (1, 1), at);
    conv.entries = 10;
    conv.line_stride = iw as u32;
    conv.surf_stride = (iw * (ih - 1)) as i32;
    let mut words = conv.words();
    words.change(cna::ConvCon1::OFFSET, 0x6000_a120);
    words.change(cna::DataSize1::OFFSET, 2 << 16 | 8);
    words.change(cna::CvtCon5::OFFSET, 7);
    board.run(&words.finish(CONV)).assert_clean();
    let got = board.bytes(conv.c, iw * ih * 32);
    for (n, p) in (0..16).flat_map(|n| (0..iw * ih).map(move |p| (n, p))) {
        let sum: f32 = (0..3).map(|c| x[p * 3 + c] * w[n * 3 + c]).sum();
        let value = half_at(&got, cube_index(8, iw * ih, p, n));
        assert_eq!(value, sum, "channel {n}, pixel {p}");
    }
}

#[test]
fn a_scale_and_a_bias_for_each_channel() {
    let (m, n) = (4usize, 32usize);
    let sums = BoardMatmul::right(INT8_INT32, (m, 64, n));
    let mut scaled = BoardMatmul::new(INT8_INT32, (m, 64, n), Level::Strict);
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
    scaled.conv.bs_cfg = 0x20140;
    scaled.conv.rdma = Some(Rdma {
        brdma: 0xe,
        ..Rdma::bias(scaled.board.place(&operands))
    });
    let mut words = scaled.conv.words();
    words.change(dpu::BsMulCfg::OFFSET, shift << 8 | 1);
    words.change(dpu::DataFormat::OFFSET, 0x8000_0000 | negative << 4);
    scaled.board.run(&words.finish(CONV_RDMA)).assert_clean();
    let got = scaled.out();
    for (row, c) in (0..m).flat_map(|row| (0..n).map(move |c| (row, c))) {
        let at = cube_index(4, m, row, c);
        let sum = i64::from(word_at(&sums, at)) + i64::from(bias[c]);
        let matmul = sum * i64::from(scale[c]);
        let bits = if matmul < 0 { negative } else { shift };
        // Below 2^53: the quotient is exact, and so is its rounding.
        let want = (matmul as f64 / f64::from(1 << bits)).round_ties_even();
        assert_eq!(f64::from(word_at(&got, at)), want, "row {row}, channel {c}");
    }
}

/// 4 x 4 spread by 2 and by 4 under a 3 x 3 kernel with a padding of 2: 9 x 15.
#[test]
fn a_transposed_convolution_spreads_its_input() {
    let shape = Shape {
        pad: (2, 2),
        far_pad: (2, 2),
        spread: (2, 4),
        ..Shape::plain((4, 4, 32), 16, (3, 3))
    };
    let mut board = Board::strict(1 << 20);
    let (tensors, conv, len) = Tensors::place(&mut board, &shape, FP16_FP32, false, 4);
    let mut words = conv.words();
    words.change(cna::ConvCon1::OFFSET, 1 << 16 | 0x120);
    words.change(cna::ConvCon3::OFFSET, 3 << 11 | 1 << 8 | 9);
    board.run(&words.finish(CONV)).assert_clean();
    tensors.assert_sums(FP16_FP32, &board.bytes(conv.c, len), |_| 0.0);
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
    assert_eq!(word_at(&board.bytes(d, 4), 0), x * i32::from(y as i16));
}

#[test]
fn flying_operands_that_silicon_was_measured_to_spoil() {
    // ORIG_CHANNEL 0: one lane of eight is right.
    let mut board = Board::new(1 << 16);
    let (a, b, at) = operands(&mut board);
    let mut words = Flying::fp16(8, 0x1082_02c0, at).words();
    words.change(dpu::DataCubeChannel::OFFSET, 7);
    let outcome = board.run(&words.finish(FLYING));
    assert_trap(&outcome, "T48-orig-channel", Effect::Garbage);
    let got = board.bytes(at.2, 128);
    for i in 0..64 {
        let right = half_at(&got, i) == f16::from_f32(a[i] + b[i]).to_f32();
        assert_eq!(right, i % 8 == 0 || a[i] + b[i] == 0.0, "element {i}");
    }
    // A trailer that links to address 0 ends the task like any other.
    let words = Flying::fp16(8, 0x1080_03c4, at).words();
    board
        .run(&words.finish_linked(Some((0, 0)), FLYING))
        .assert_clean();
}
