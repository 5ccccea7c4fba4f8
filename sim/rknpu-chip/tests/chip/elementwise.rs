// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations with an operand from memory: flying, and behind CORE.

use half::f16;
use proptest::prelude::*;

use super::board::Board;
use super::board_matmul::shape;
use super::clients::allbilly;
use super::convolution::Tensors;
use super::tensor::{Numbers, cube_index, half_at, word_at};
use families::conv::Rdma;
use families::flying::Flying;
use families::matmul::FP16_FP16;

fn bytes<const N: usize, T: Copy>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}

/// The complete program, and on 8 columns one of seventeen words.
#[test]
fn fp16_operations_on_flat_vectors() {
    type Op = fn(f32, f32) -> f32;
    const MODE: (u32, u32) = (0x17849, 0x10001);
    // Division works on fp16 itself.
    const HALF_MODE: (u32, u32) = (0x17841, 1);
    let operations: [(u32, (u32, u32), Op); 6] = [
        (0x1082_02c0, MODE, |a, b| a + b),
        (0x1084_02c0, MODE, |a, b| a - b),
        (0x1080_02c0, MODE, f32::max),
        (0x1081_02c0, MODE, f32::min),
        (0x1080_03c4, MODE, |a, b| a * b),
        (0x1083_03c0, HALF_MODE, |a, b| a / b),
    ];
    let programs = operations.into_iter().flat_map(|op| [(op, 8), (op, 37)]);
    for (number, ((ew_cfg, (mode, scale), op), cols)) in programs.enumerate() {
        let mut numbers = Numbers::new(number as u64);
        let (a, b) = (numbers.f16s(8 * cols), numbers.f16s(8 * cols));
        let mut board = Board::strict(1 << 16);
        let at = (
            board.place(&bytes(&a, f16::to_le_bytes)),
            board.place(&bytes(&b, f16::to_le_bytes)),
            board.reserve(16 * cols),
        );
        let words = if cols == 8 {
            allbilly(ew_cfg, mode, Some(scale), true, at)
        } else {
            let mut flying = Flying::fp16(cols as u32, ew_cfg, at);
            flying.mode = mode;
            flying.out.1 = scale;
            flying.program()
        };
        board.run(&words).assert_clean();
        let out = board.bytes(at.2, 16 * cols);
        for (i, (a, b)) in a.into_iter().zip(b).enumerate() {
            let expected = f16::from_f32(op(a.to_f32(), b.to_f32())).to_f32();
            let got = half_at(&out, i);
            let same = got == expected || got.is_nan() && expected.is_nan();
            assert!(same, "{ew_cfg:#x}: {a} and {b} give {got}, not {expected}");
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(16))]

    #[test]
    fn int32_cubes_are_added_also_in_place(
        rows in 1usize..20,
        blocks in 1usize..5,
        in_place: bool,
        float: bool,
        seed: u64,
    ) {
        let channels = blocks * 32;
        let mut numbers = Numbers::new(seed);
        let mut ints = || (0..rows * channels).map(|_| numbers.int(-1 << 28, 1 << 28) as i32).collect::<Vec<_>>();
        let (a, b) = (ints(), ints());
        let mut board = Board::strict(1 << 17);
        let (a_at, b_at) = (board.place(&bytes(&a, i32::to_le_bytes)), board.place(&bytes(&b, i32::to_le_bytes)));
        let c_at = if in_place { a_at } else { board.reserve(rows * channels * 4) };
        let mut flying = Flying::int32_add(rows as u32, channels as u32, (a_at, b_at, c_at));
        if float {
            flying.format = 5 << 29 | 4 << 26 | 4;
        }
        board.run(&flying.program()).assert_clean();
        let bytes = board.bytes(c_at, rows * channels * 4);
        for (i, (a, b)) in a.into_iter().zip(b).enumerate() {
            let sum = a + b;
            let expected = if float { (sum as f32).to_bits() as i32 } else { sum };
            prop_assert_eq!(word_at(&bytes, i), expected);
        }
    }

    #[test]
    fn fp16_matmuls_accumulate_over_tiles_of_k(
        m4 in 3usize..8,
        tiles in 2usize..4,
        op in 0usize..4,
        seed: u64,
    ) {
        let (m, n) = (m4 * 4, 48);
        let mut numbers = Numbers::new(seed);
        let mut board = Board::strict(1 << 20);
        let words = [0x1082_02c0u32, 0x1080_03c4, 0x1080_02c0, 0x1081_02c0];
        // By row and column.
        let mut expected = vec![f16::ZERO; m * n];
        // Two buffers alternate: in place the sums are garbage.
        let buffers = [board.reserve(m * n * 2), board.reserve(m * n * 2)];
        for tile in 0..tiles {
            let values = |len| {
                let values = numbers.fractions(len, (-32, 32), 5);
                values.into_iter().map(f64::from).collect()
            };
            let tensors = Tensors::new(&shape((m, 64, n)), false, values);
            let (from, to) = (buffers[(tile + 1) % 2], buffers[tile % 2]);
            let mut conv = tensors.conv(&mut board, FP16_FP16, 0);
            conv.c = to;
            if tile > 0 {
                conv.ew_cfg = words[op];
                conv.rdma = Some(Rdma::operand(from, m as u32, m as u32));
            }
            board.run(&conv.task()).assert_clean();
            for (col, row) in tensors.outputs() {
                // The sums are multiples of 2^-10 below 2^6: exact.
                let sum = tensors.sum(col, row, |_| 0.0, 0.0).0 as f32;
                let old = expected[row * n + col].to_f32();
                let value = match (tile, op) {
                    (0, _) => sum,
                    (_, 0) => sum + old,
                    (_, 1) => sum * old,
                    (_, 2) => sum.max(old),
                    _ => sum.min(old),
                };
                expected[row * n + col] = f16::from_f32(value);
            }
        }
        let got = board.bytes(buffers[(tiles - 1) % 2], m * n * 2);
        for (i, expected) in expected.into_iter().enumerate() {
            let got = half_at(&got, cube_index(8, m, i / n, i % n));
            prop_assert_eq!(got, expected.to_f32(), "({}, {})", i / n, i % n);
        }
    }
}

#[test]
fn fp32_rows_are_scaled_by_row_and_by_channel() {
    // happyme531's dequantisation of one row of a cube.
    let (rows, channels, row) = (6usize, 32usize, 4usize);
    let mut numbers = Numbers::new(9);
    let x = numbers.fractions(rows * channels, (-1000, 1000), 0);
    let scales: Vec<f16> = numbers.f16s(channels);
    let row_scale = f16::from_f32(0.375);
    let mut board = Board::strict(1 << 16);
    let scale_bytes = bytes(&scales, |s| u32::from(s.to_bits()).to_le_bytes());
    let at = (
        board.place(&bytes(&x, f32::to_le_bytes)),
        board.place(&scale_bytes),
        board.reserve(channels * 4),
    );
    let scale = u32::from(row_scale.to_bits());
    let flying = Flying::dequantise_row((rows as u32, row as u32), channels as u32, scale, at);
    board.run(&flying.program()).assert_clean();
    let out = board.bytes(at.2, channels * 4);
    for c in 0..channels {
        let value = x[cube_index(4, rows, row, c)];
        let expected = value * row_scale.to_f32() * scales[c].to_f32();
        let got = f32::from_bits(word_at(&out, c) as u32);
        assert_eq!(got, expected, "channel {c}");
    }
}

#[test]
fn a_contiguous_int8_row_goes_into_a_cube() {
    let (channels, rows, row) = (96usize, 8usize, 3usize);
    let mut numbers = Numbers::new(4);
    let source: Vec<i8> = (0..channels)
        .map(|_| numbers.int(-128, 127) as i8)
        .collect();
    let mut board = Board::strict(1 << 16);
    let src = board.place(&bytes(&source, i8::to_le_bytes));
    let dst = board.reserve(channels * rows);
    let to = dst + 16 * row as u32;
    let flying = Flying::copy_row(rows as u32, channels as u32, src, to);
    board.run(&flying.program()).assert_clean();
    let out = board.bytes(dst, channels * rows);
    for (c, &value) in source.iter().enumerate() {
        assert_eq!(out[cube_index(16, rows, row, c)] as i8, value);
    }
    assert_eq!(out[0], super::board::SENTINEL);
}
