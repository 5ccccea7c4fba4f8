// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traps of the operands that the DPU reads: symptom and diagnosis.

use rknpu_chip::{Effect, Level};

use super::board::{Board, Outcome};
use super::programs::{Flying, MatType, Rdma};
use super::tensor::Numbers;
use super::traps::{assert_trap, product};

fn accumulation(m: u32, notch: u32, ew_cfg: u32, mode: u32) -> (Outcome, Vec<u8>) {
    let mut product = product(MatType::Fp16Fp16, (m as usize, 64, 48), Level::Faithful);
    let mut numbers = Numbers::new(2);
    let operand: Vec<u8> = numbers
        .f16s(m as usize * 96)
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let at = product.board.place(&operand);
    product.conv.ew_cfg = ew_cfg;
    product.conv.rdma = Some(Rdma {
        src: at,
        ew: at + 16 * m,
        erdma: 0x4000_0008,
        ew_stride: notch,
        mode,
        notch,
        ..Rdma::default()
    });
    let outcome = product.board.run(&product.conv.program());
    let out = product.out();
    (outcome, out)
}

#[test]
fn t42_to_t47_operands_behind_core() {
    const ADD: u32 = 0x1082_02c0;
    let (outcome, right) = accumulation(12, 12, ADD, 0x17d40);
    outcome.assert_clean();
    // The first pair of surfaces needs no notch.
    let pair = 2 * 12 * 16;
    let (outcome, wrong) = accumulation(12, 0, ADD, 0x17d40);
    assert_trap(&outcome, "T43-no-surface-notch", Effect::Garbage);
    assert_eq!(wrong[..pair], right[..pair]);
    assert_ne!(wrong[pair..], right[pair..]);

    let (outcome, right) = accumulation(8, 8, ADD, 0x17d40);
    outcome.assert_clean();
    let pair = 2 * 8 * 16;
    let (outcome, wrong) = accumulation(8, 12, ADD, 0x17d40);
    assert_trap(&outcome, "T42-surface-notch", Effect::Garbage);
    assert_eq!(wrong[..pair], right[..pair]);
    assert_ne!(wrong[pair..], right[pair..]);

    let (outcome, bytes) = accumulation(12, 12, ADD, 0x00500);
    assert_trap(&outcome, "T45-operand-as-bytes", Effect::Garbage);
    assert_ne!(bytes, accumulation(12, 12, ADD, 0x17d40).1);

    // With OP_CVT_BYPASS the operand is ignored: the bare product.
    let (outcome, ignored) = accumulation(12, 12, ADD | 0x100, 0x17d40);
    assert_trap(&outcome, "T47-operand-ignored", Effect::Garbage);
    let mut plain = product(MatType::Fp16Fp16, (12, 64, 48), Level::Strict);
    plain.board.run(&plain.conv.program()).assert_clean();
    assert_eq!(ignored, plain.out());
}

#[test]
fn t46_t48_flying_operands() {
    let mut board = Board::new(1 << 16);
    let (a, b) = (board.place(&[1; 2048]), board.place(&[2; 2048]));
    let d = board.reserve(2048);
    let mut add = Flying::int32_add(8, 64, (a, b, d));
    add.ew_cfg = 0x10c2_02c0;
    let outcome = board.run(&add.program());
    assert_trap(&outcome, "T46-operand-as-float", Effect::Garbage);
    assert_ne!(board.bytes(d, 4), [3; 4]);

    let mut multiply = Flying::fp16(16, 0x1080_03c4, (a, b, d));
    multiply.mode = 0x17d49;
    let outcome = board.run(&multiply.program());
    assert_trap(&outcome, "T48-comb-use-flying", Effect::Garbage);
    assert_eq!(board.bytes(d, 256), [0; 256]);
}
