// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the fast paths of the model with their defining formulas: the same
//! programs on a chip that computes literally leave the same memory, status,
//! diagnoses and device time.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rknpu_chip::ChipOptions;
use rknpu_regcmd::Word;

use super::board::{Board, Outcome};
use super::robust::{any_register, any_value, good_programs};
use super::tensor::Numbers;
use families::conv::{ConvProgram, Rdma, WriterWalk};
use families::flying::Flying;
use families::matmul::{self, FP16_FP32, INT8_INT32, OperandTypes};

/// Memory of a board. Operands are in its lower half, programs in the upper.
const MEMORY: usize = 1 << 20;
/// Addresses of features, weights and results.
const AT: (u32, u32, u32) = (0x1000, 0x20000, 0x40000);
/// Number of programs, most of which must complete.
const PROGRAMS: usize = 40;

/// A board whose memory holds numbers of `seed`.
fn board(literal: bool, seed: u64) -> Board {
    board_within(Duration::from_millis(1), literal, seed)
}

/// Like [`board`], with another time limit.
fn board_within(limit: Duration, literal: bool, seed: u64) -> Board {
    let options = ChipOptions {
        literal,
        ..ChipOptions::default()
    };
    let mut board = Board::with_options(MEMORY, &options).within(limit);
    let mut numbers = Numbers::new(seed);
    for bytes in board.memory.bytes.chunks_exact_mut(8) {
        bytes.copy_from_slice(&numbers.next().to_le_bytes());
    }
    board
}

/// Whether an access failed. Which byte fails depends on the access length.
fn faulted(outcome: &Outcome) -> bool {
    outcome.traps().contains(&"F01-iommu-fault")
}

/// Runs the programs one after the other on both boards, and compares.
pub(super) fn assert_same(programs: &[Vec<Word>], seed: u64) -> Result<(), TestCaseError> {
    let (mut fast, mut slow) = (board(false, seed), board(true, seed));
    // Tasks are unlikely to write where the programs lie.
    for board in [&mut fast, &mut slow] {
        board.skip(MEMORY / 2);
    }
    same_on(&mut fast, &mut slow, programs)
}

/// Like [`assert_same`], on two boards of equal memory.
fn same_on(
    fast: &mut Board,
    slow: &mut Board,
    programs: &[Vec<Word>],
) -> Result<(), TestCaseError> {
    for words in programs {
        let (fast_outcome, slow_outcome) = (fast.run(words), slow.run(words));
        prop_assert_eq!(faulted(&fast_outcome), faulted(&slow_outcome));
        if faulted(&fast_outcome) {
            return Ok(());
        }
        prop_assert_eq!(fast_outcome.raw_status, slow_outcome.raw_status);
        prop_assert_eq!(&fast_outcome.diagnosis, &slow_outcome.diagnosis);
        prop_assert_eq!(fast_outcome.device_time, slow_outcome.device_time);
        let (fast, slow) = (&fast.memory.bytes, &slow.memory.bytes);
        let first = fast.iter().zip(slow.iter()).position(|(a, b)| a != b);
        prop_assert_eq!(first, None, "{:?}", fast_outcome.traps());
    }
    Ok(())
}

/// A convolution of any geometry that the registers can hold, useful or not:
/// windows, strides, padding, pitches, groups, reuse.
pub(super) fn convolution() -> impl Strategy<Value = ConvProgram> {
    prop::sample::select(matmul::ALL.to_vec()).prop_flat_map(convolution_of)
}

/// Like [`convolution`], of one type.
pub(super) fn convolution_of(ty: OperandTypes) -> impl Strategy<Value = ConvProgram> {
    let geometry = (
        (1u32..14, 1u32..12, 1u32..5),
        (1u32..10, 1u32..10, 1u32..80),
        (1u32..4, 1u32..4),
        (1u32..4, 1u32..4),
        (1u32..4, 1u32..4),
        (0u32..4, 0u32..4),
    );
    let addressing = (
        any::<bool>(),
        prop_oneof![Just(None), (0u32..80).prop_map(Some)],
        prop_oneof![Just(None), (-40i32..200).prop_map(Some)],
        prop_oneof![Just(None), (0u32..4, 0u32..90, 0u32..90).prop_map(Some)],
    );
    let operation = (
        any::<bool>(),
        any::<bool>(),
        any::<i16>(),
        prop_oneof![Just(0u32), any::<u32>()],
        prop::sample::select(vec![0x53u32, 0x40, 0x42, 0x10, 0x00]),
        (0u32..0x8000, 0u32..32, -200i32..200),
    );
    (geometry, addressing, operation).prop_map(move |(geometry, addressing, operation)| {
        let ((iw, ih, atoms), (ow, oh, n), kernel, stride, dilation, pad) = geometry;
        let (off, line, surface, writer) = addressing;
        let (depthwise, sums, offset, pad_value, bs_cfg, (scale, shift, add)) = operation;
        let multiple = ty.depth;
        let channels = atoms * multiple;
        let (input, output) = ((iw, ih, channels), (ow, oh, n));
        let mut conv = ty.conv(input, output, kernel, AT);
        conv.group_line_off = off;
        conv.stride = stride;
        conv.dilation = dilation;
        conv.pad = pad;
        conv.pad_value = pad_value;
        if depthwise {
            make_depthwise(&mut conv, ty);
        }
        let lines = if off { 1 } else { 4 };
        conv.line_stride = line.unwrap_or(lines * iw);
        conv.surf_stride = surface.unwrap_or((iw * ih) as i32 - (lines * iw) as i32);
        let pixels = ow * oh;
        let (notch, stride, add_surface) =
            writer.unwrap_or((0, pixels, (conv.size_e + 1) * pixels));
        conv.writer = WriterWalk {
            width: ow,
            height: oh,
            stride,
            notch,
            add: add_surface,
        };
        if sums {
            conv.qd = 1;
            conv.od_bypass = 0;
            conv.ow_op = u32::from(offset as u16);
        }
        conv.bs_cfg = bs_cfg;
        if bs_cfg != 0x53 {
            conv.out_scale = (conv.out_scale & 0x1_0000) | scale;
            conv.out_shift = shift;
            conv.out_offset = add as u32;
        }
        conv
    })
}

fn make_depthwise(conv: &mut ConvProgram, ty: OperandTypes) {
    let group = ty.group;
    let held = conv.input.2.next_multiple_of(2 * group);
    let taps = conv.kernel.0 * conv.kernel.1;
    conv.depthwise = true;
    conv.kernels = 1;
    conv.weight_bytes = held * taps * ty.bits / 8;
}

/// An int8-to-int8 depthwise convolution of whole groups of channels. The
/// features may have fewer channels. Atoms may overlap in memory.
fn requantised() -> impl Strategy<Value = ConvProgram> {
    let groups = (1u32..3, 1u32..12, any::<bool>());
    let conv = convolution_of(INT8_INT32);
    (conv, groups, 0u32..3).prop_map(|(mut conv, (groups, atoms, apart), odd)| {
        make_depthwise(&mut conv, INT8_INT32);
        conv.po = 0;
        conv.size_e = 3;
        conv.output.2 = 64 * groups;
        // Channels may end within an atom.
        conv.input.2 = 16 * atoms - odd;
        let pixels = conv.output.0 * conv.output.1;
        if apart {
            conv.writer = WriterWalk {
                width: conv.output.0,
                height: conv.output.1,
                stride: pixels,
                notch: 0,
                add: 4 * pixels,
            };
        }
        conv
    })
}

/// The comparison is useful only if most programs complete.
#[test]
fn most_random_convolutions_complete() {
    assert_most_complete(&convolution().prop_map(|conv| conv.task()));
    assert_most_complete(&requantised().prop_map(|conv| conv.task()));
}

pub(super) fn assert_most_complete(programs: &impl Strategy<Value = Vec<Word>>) {
    let mut runner = TestRunner::deterministic();
    let completed = (0..PROGRAMS)
        .filter(|_| {
            let words = programs.new_tree(&mut runner).unwrap().current();
            let mut board = board(false, 1);
            board.skip(MEMORY / 2);
            board.run(&words).completed()
        })
        .count();
    assert!(completed > PROGRAMS / 2, "{completed} of {PROGRAMS}");
}

/// Features of which only a band is held at a time, then CBUF's contents. Their
/// lines overlap, so that the memory suffices.
#[test]
fn features_larger_than_a_band() {
    for (ty, depthwise, stride) in [
        (INT8_INT32, false, 3),
        (INT8_INT32, true, 6),
        (FP16_FP32, false, 5),
    ] {
        let (width, height, channels) = (512, 900 * ty.bits / 8, 32);
        let (input, output) = ((width, height, channels), (3, height / stride, 64));
        let mut conv = ty.conv(input, output, (2, 3), AT);
        conv.stride = (2, stride);
        conv.dilation = (1, 4);
        conv.pad = (1, 1);
        conv.entries = width * channels / 64;
        conv.data_banks = 5;
        conv.line_stride = 9;
        conv.surf_stride = 70 - 4 * width as i32;
        if depthwise {
            make_depthwise(&mut conv, ty);
        }
        // Lines that do not fit read as weights; with few grains they stream.
        let mut streaming = conv.clone();
        streaming.grains = 8;
        let mut reuse = streaming.clone();
        reuse.data_reuse = true;
        let programs = [conv.task(), streaming.task(), reuse.task()];
        let board = |literal| board_within(Duration::from_millis(500), literal, 5);
        let (mut fast, mut slow) = (board(false), board(true));
        for board in [&mut fast, &mut slow] {
            board.skip(MEMORY / 2);
        }
        // CBUF never holds all of a cube of this size for reuse.
        same_on(&mut fast, &mut slow, &programs).unwrap();
        let outcome = fast.run(&programs[1]);
        assert!(outcome.completed(), "{:#?}", outcome.diagnosis);
    }
}

proptest! {
    #![proptest_config(test_support::cases(96))]

    #[test]
    fn convolutions(
        mut first in convolution(),
        operand in prop::sample::select(vec![0u32, 0x1082_02c0, 0x10c2_03c0]),
        reuse: (bool, bool),
        notch in 0u32..20,
        seed: u64,
    ) {
        if operand != 0 {
            first.ew_cfg = operand;
            let pixels = first.output.0 * first.output.1;
            let operand = Rdma::operand(0x60000, pixels, notch);
            first.rdma = Some(Rdma { ew_stride: pixels, ..operand });
        }
        let mut second = first.clone();
        second.data_reuse = reuse.0;
        second.weight_reuse = reuse.1;
        second.c += 0x10000;
        assert_same(&[first.task(), second.task()], seed)?;
    }

    #[test]
    fn requantised_depthwise_convolutions(
        conv in requantised(),
        truncate in prop_oneof![3 => Just(0u32), 1 => 1u32..5],
        seed: u64,
    ) {
        let conv = ConvProgram { truncate, ..conv };
        assert_same(&[conv.task()], seed)?;
    }

    /// A task that reuses CBUF shows which features stayed in it, whether or not
    /// the task between wrote the same places.
    #[test]
    fn depthwise_features_that_stay(
        first in requantised(),
        other in requantised(),
        again: bool,
        seed: u64,
    ) {
        let second = if again {
            ConvProgram { a: first.a + 0x4000, ..first.clone() }
        } else {
            other
        };
        let mut third = second.clone();
        third.data_reuse = true;
        third.c += 0x10000;
        assert_same(&[first.task(), second.task(), third.task()], seed)?;
    }

    #[test]
    fn flying_operations(
        cols in 1u32..300,
        rows in 1u32..80,
        channels in 1u32..70,
        ew in prop::sample::select(vec![0x1082_02c0u32, 0x10c2_03c0, 0x1080_02c0]),
        seed: u64,
    ) {
        let programs = [
            Flying::fp16(cols, ew, AT).program(),
            Flying::int32_add(rows, channels, AT).program(),
        ];
        assert_same(&programs, seed)?;
    }

    #[test]
    fn any_change_of_good_programs(
        which in 0usize..13,
        changes in prop::collection::vec((any_register(), any_value()), 0..4),
        seed: u64,
    ) {
        let mut words = good_programs()[which].clone();
        let trailer = words.split_off(words.len() - 4);
        for ((block, offset), value) in changes {
            if block != rknpu_regcmd::Block::Pc {
                words.push(Word::new(block.target(), offset, value));
            }
        }
        words.extend(trailer);
        assert_same(&[words], seed)?;
    }
}
