// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traps of operands that DPU and PPU read: symptom and diagnosis.

use families::FLYING;
use families::conv::Rdma;
use families::flying::Flying;
use families::matmul::FP16_FP16;
use families::pooling::{Padding, PoolProgram};
use rknpu_chip::{Effect, Level};
use rknpu_regcmd::regs::dpu;

use super::board::{Board, Outcome};
use super::board_matmul::{BoardMatmul, assert_trap};
use super::tensor::Numbers;

#[test]
fn t30_the_widest_lines_lose_their_end() {
    let cols = 8192u32;
    let bytes = vec![0x3c; cols as usize * 16];
    let mut board = Board::new(1 << 20);
    let (a, b) = (board.place(&bytes), board.place(&bytes));
    let d = board.reserve(bytes.len());
    let mut copy = Flying::fp16(cols, 0x383, (a, b, d));
    copy.erdma = 1;
    let outcome = board.run(&copy.program());
    assert_trap(&outcome, "T30-width", Effect::Garbage);
    let out = board.bytes(d, bytes.len());
    let wrong = out.chunks_exact(2).filter(|pair| *pair != [0x3c, 0x3c]);
    assert_eq!(wrong.count(), 54);
    assert!(out[..out.len() - 108].iter().all(|&b| b == 0x3c));
}

fn accumulation(m: u32, notch: u32, ew_cfg: u32, mode: u32) -> (Outcome, Vec<u8>) {
    let mut matmul = BoardMatmul::new(FP16_FP16, (m as usize, 64, 48), Level::Faithful);
    let operand = Numbers::new(2).f16s(m as usize * 96);
    let bytes: Vec<u8> = operand.iter().flat_map(|v| v.to_le_bytes()).collect();
    let at = matmul.board.place(&bytes);
    matmul.conv.ew_cfg = ew_cfg;
    matmul.conv.rdma = Some(Rdma {
        mode: Some(mode),
        ..Rdma::operand(at, m, notch)
    });
    (matmul.run(), matmul.out())
}

#[test]
fn t42_to_t47_operands_behind_core() {
    const ADD: u32 = 0x1082_02c0;
    const MODE: u32 = 0x17d40;
    for (m, notch, trap) in [
        (12, 0, "T43-no-surface-notch"),
        (8, 12, "T42-surface-notch"),
    ] {
        let (outcome, right) = accumulation(m, m, ADD, MODE);
        outcome.assert_clean();
        // The first pair of surfaces needs no notch.
        let pair = 2 * m as usize * 16;
        let (outcome, wrong) = accumulation(m, notch, ADD, MODE);
        assert_trap(&outcome, trap, Effect::Garbage);
        assert_eq!(wrong[..pair], right[..pair]);
        assert_ne!(wrong[pair..], right[pair..]);
    }
    let (outcome, bytes) = accumulation(12, 12, ADD, 0x00500);
    assert_trap(&outcome, "T45-operand-as-bytes", Effect::Garbage);
    assert_ne!(bytes, accumulation(12, 12, ADD, MODE).1);

    // With OP_CVT_BYPASS the operand is ignored: the plain matmul.
    let (outcome, ignored) = accumulation(12, 12, ADD | 0x100, MODE);
    assert_trap(&outcome, "T47-operand-ignored", Effect::Garbage);
    assert_eq!(ignored, BoardMatmul::right(FP16_FP16, (12, 64, 48)));
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

#[test]
fn t55_an_upload_that_begins_anew_is_told() {
    let mut board = Board::new(1 << 16);
    let (a, d) = (board.place(&[0; 128]), board.reserve(128));
    let mut copy = Flying::fp16(8, 0x383, (a, a, d));
    copy.erdma = 1;
    let mut words = copy.words();
    for entry in [1, 2] {
        words.extend(&[
            (dpu::LutAccessCfg::OFFSET, 0x20000),
            (dpu::LutAccessData::OFFSET, entry),
        ]);
    }
    let outcome = board.run(&words.finish(FLYING));
    assert_trap(&outcome, "T55-upload-restarted", Effect::Note);
}

#[test]
fn t59_t60_pooling() {
    // Negative numbers: padding with 0 would win.
    let run = |pool: PoolProgram| {
        let mut board = Board::new(1 << 16);
        let src = board.place(&[0xbc; 6 * 6 * 16]);
        let dst = board.reserve(8 * 8 * 16);
        let outcome = board.run(&PoolProgram { src, dst, ..pool }.program());
        (outcome, board.bytes(dst, 16))
    };
    let pool = |method, kernel| PoolProgram::new(method, (6, 6), kernel, (0, 0));
    run(pool(1, (2, 2))).0.assert_clean();
    let (outcome, bytes) = run(pool(0, (1, 2)));
    assert_trap(&outcome, "T59-average-of-one", Effect::Garbage);
    // Minus infinity: the reciprocal overflowed.
    assert_eq!(bytes[..2], [0x00, 0xfc]);
    let (outcome, bytes) = run(PoolProgram {
        pad: Padding {
            left: 1,
            top: 1,
            ..Padding::default()
        },
        output: (6, 6),
        ..pool(1, (2, 2))
    });
    assert_trap(&outcome, "T60-max-padding", Effect::Garbage);
    assert_eq!(bytes, [0; 16], "0 beats every negative number");
}
