// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations with an operand from memory: flying, and behind CORE.

use half::f16;
use proptest::prelude::*;

use super::board::Board;
use super::programs::{Flying, MatType, Rdma};
use super::tensor::{Numbers, pack_a, pack_b};

fn fp16_bytes(values: &[f16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn fp16_values(bytes: &[u8]) -> Vec<f16> {
    bytes
        .chunks_exact(2)
        .map(|b| f16::from_le_bytes([b[0], b[1]]))
        .collect()
}

fn int32_bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn int32_values(bytes: &[u8]) -> Vec<i32> {
    bytes
        .chunks_exact(4)
        .map(|b| i32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

#[test]
fn fp16_operations_on_flat_vectors() {
    type Op = fn(f32, f32) -> f32;
    let operations: [(u32, Op); 6] = [
        (0x1082_02c0, |a, b| a + b),
        (0x1084_02c0, |a, b| a - b),
        (0x1080_02c0, f32::max),
        (0x1081_02c0, f32::min),
        (0x1080_03c4, |a, b| a * b),
        (0x1083_03c0, |a, b| a / b),
    ];
    for (number, (ew_cfg, op)) in operations.into_iter().enumerate() {
        let cols = 37;
        let mut numbers = Numbers::new(number as u64);
        let (a, b) = (numbers.f16s(8 * cols), numbers.f16s(8 * cols));
        let mut board = Board::strict(1 << 16);
        let at = (
            board.place(&fp16_bytes(&a)),
            board.place(&fp16_bytes(&b)),
            board.reserve(16 * cols),
        );
        let mut flying = Flying::fp16(cols as u32, ew_cfg, at);
        if number == 5 {
            // Division works on fp16 itself.
            flying.mode = 0x17841;
            flying.out.1 = 1;
        }
        board.run(&flying.program()).assert_clean();
        let got = fp16_values(&board.bytes(at.2, 16 * cols));
        for i in 0..8 * cols {
            let expected = f16::from_f32(op(a[i].to_f32(), b[i].to_f32()));
            assert!(
                got[i] == expected || (got[i].is_nan() && expected.is_nan()),
                "{ew_cfg:#x}: {} and {} give {}, not {expected}",
                a[i],
                b[i],
                got[i]
            );
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
        let (a_at, b_at) = (board.place(&int32_bytes(&a)), board.place(&int32_bytes(&b)));
        let c_at = if in_place { a_at } else { board.reserve(rows * channels * 4) };
        let mut flying = Flying::int32_add(rows as u32, channels as u32, (a_at, b_at, c_at));
        if float {
            flying.format = 5 << 29 | 4 << 26 | 4;
        }
        board.run(&flying.program()).assert_clean();
        let bytes = board.bytes(c_at, rows * channels * 4);
        for (i, got) in int32_values(&bytes).into_iter().enumerate() {
            let sum = a[i] + b[i];
            let expected = if float { (sum as f32).to_bits() as i32 } else { sum };
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn fp16_products_accumulate_over_tiles_of_k(
        m4 in 3usize..8,
        tiles in 2usize..4,
        op in 0usize..4,
        seed: u64,
    ) {
        let ty = MatType::Fp16Fp16;
        let (m, k, n) = (m4 * 4, 64, 48);
        let mut numbers = Numbers::new(seed);
        let mut board = Board::strict(1 << 20);
        let words = [0x1082_02c0u32, 0x1080_03c4, 0x1080_02c0, 0x1081_02c0];
        let mut expected = vec![f16::ZERO; m * n];
        // Two buffers take turns: in place the sums are garbage.
        let buffers = [board.reserve(m * n * 2), board.reserve(m * n * 2)];
        for tile in 0..tiles {
            let mut values = |len: usize| (0..len).map(|_| numbers.int(-32, 32) as f64 / 32.0).collect::<Vec<_>>();
            let (a, b) = (values(m * k), values(n * k));
            let (a_at, b_at) = (board.place(&pack_a(ty, m, k, &a)), board.place(&pack_b(ty, k, &b)));
            let (from, to) = (buffers[(tile + 1) % 2], buffers[tile % 2]);
            let mut conv = ty.matmul(m as u32, k as u32, n as u32, (a_at, b_at, to));
            if tile > 0 {
                conv.ew_cfg = words[op];
                conv.rdma = Some(Rdma {
                    src: from,
                    ew: from + 16 * m as u32,
                    erdma: 0x4000_0008,
                    ew_stride: m as u32,
                    mode: 0x17d40,
                    notch: m as u32,
                    ..Rdma::default()
                });
            }
            board.run(&conv.program()).assert_clean();
            for row in 0..m {
                for col in 0..n {
                    // The sums are multiples of 2^-10 below 2^6: exact.
                    let sum = super::tensor::dot(&a, &b, k, row, col).0 as f32;
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
        }
        let got = fp16_values(&board.bytes(buffers[(tiles - 1) % 2], m * n * 2));
        for row in 0..m {
            for col in 0..n {
                let place = ((col / 8) * m + row) * 8 + col % 8;
                prop_assert_eq!(got[place], expected[row * n + col], "({}, {})", row, col);
            }
        }
    }
}

#[test]
fn fp32_rows_are_scaled_by_row_and_by_channel() {
    // happyme531's dequantisation of one row of a cube.
    let (rows, channels, row) = (6usize, 32usize, 4usize);
    let mut numbers = Numbers::new(9);
    let x: Vec<f32> = (0..rows * channels)
        .map(|_| numbers.int(-1000, 1000) as f32)
        .collect();
    let scales: Vec<f16> = numbers.f16s(channels);
    let row_scale = f16::from_f32(0.375);
    let mut board = Board::strict(1 << 16);
    let x_bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let scale_bytes: Vec<u8> = scales
        .iter()
        .flat_map(|s| u32::from(s.to_bits()).to_le_bytes())
        .collect();
    let (x_at, s_at) = (board.place(&x_bytes), board.place(&scale_bytes));
    let y_at = board.reserve(channels * 4);
    let mut flying = Flying::int32_add(1, channels as u32, (x_at + 16 * row as u32, s_at, y_at));
    flying.format = 0xb400_0005;
    flying.bs = (0x42, u32::from(row_scale.to_bits()) << 16);
    flying.ew_cfg = 0x10c0_03c4;
    flying.mode = 0x2f8a1;
    flying.notch = rows as u32 - 1;
    board.run(&flying.program()).assert_clean();
    let out = board.bytes(y_at, channels * 4);
    for c in 0..channels {
        let value = x[((c / 4) * rows + row) * 4 + c % 4];
        let expected = value * row_scale.to_f32() * scales[c].to_f32();
        let got = f32::from_le_bytes(out[4 * c..4 * c + 4].try_into().unwrap());
        assert_eq!(got, expected, "channel {c}");
    }
}

#[test]
fn a_contiguous_int8_row_goes_into_a_cube() {
    let (channels, rows, row) = (96usize, 8usize, 3usize);
    let mut numbers = Numbers::new(4);
    let source = numbers.i8s(channels);
    let mut board = Board::strict(1 << 16);
    let bytes: Vec<u8> = source.iter().map(|&b| b as u8).collect();
    let src = board.place(&bytes);
    let dst = board.reserve(channels * rows);
    let mut flying = Flying::int32_add(1, channels as u32, (src, 0, dst + 16 * row as u32));
    flying.format = 0;
    flying.dst_stride = rows as u32;
    flying.ew_cfg = 0x383;
    flying.erdma = 1;
    flying.mode = 0x7801;
    board.run(&flying.program()).assert_clean();
    let out = board.bytes(dst, channels * rows);
    for (c, &value) in source.iter().enumerate() {
        assert_eq!(out[((c / 16) * rows + row) * 16 + c % 16] as i8, value);
    }
    assert_eq!(out[0], super::board::SENTINEL);
}
