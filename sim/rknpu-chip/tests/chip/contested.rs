// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contested facts: each switch has a program whose result shows the side, as
//! it would on a board.

use std::collections::BTreeSet;

use half::f16;
use rknpu_chip::{ChipOptions, Contested, Level};
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::{ppu, ppu_rdma};

use super::activations;
use super::board::{Board, Outcome};
use super::board_matmul::BoardMatmul;
use super::chains::later_matmuls;
use super::clients;
use super::golden;
use families::flying::Flying;
use families::lookup::{Activation, logistic};
use families::matmul::{FP16_FP32, INT8_INT32, INT16_INT32, OperandTypes, TF32_FP32};
use families::pooling::PoolProgram;

/// Whether a program completed, then the bytes of its result.
type Seen = Vec<u8>;

fn options(contested: Contested) -> ChipOptions {
    ChipOptions {
        level: Level::Silent,
        contested,
        ..ChipOptions::default()
    }
}

fn seen(outcome: &Outcome, bytes: Vec<u8>) -> Seen {
    let mut seen = vec![u8::from(outcome.completed())];
    seen.extend(bytes);
    seen
}

/// Runs a program that writes `len` bytes at `at`.
fn ran(mut board: Board, words: &[Word], at: u32, len: usize) -> Seen {
    let outcome = board.run(words);
    seen(&outcome, board.bytes(at, len))
}

fn matmul(
    contested: Contested,
    ty: OperandTypes,
    shape: (usize, usize, usize),
    change: impl FnOnce(&mut BoardMatmul),
) -> Seen {
    let mut matmul = BoardMatmul::seeded(ty, shape, &options(contested), 1);
    change(&mut matmul);
    let (words, c) = (matmul.conv.task(), matmul.conv.c);
    ran(matmul.board, &words, c, matmul.len)
}

/// One flying fp16 task on `a` and `b`, eight values each.
fn flying(contested: Contested, a: f32, b: f32, change: impl FnOnce(&mut Flying)) -> Seen {
    let mut board = Board::with_options(1 << 16, &options(contested));
    let atom = |x: f32| [f16::from_f32(x).to_le_bytes(); 8].concat();
    let at = (board.place(&atom(a)), board.place(&atom(b)));
    let out = board.reserve(16);
    let mut task = Flying::fp16(1, 0x1080_02c0, (at.0, at.1, out));
    change(&mut task);
    ran(board, &task.program(), out, 16)
}

/// A mean of 2 x 2 over values that round differently.
fn pooling(contested: Contested, bytes: bool) -> Seen {
    let mut board = Board::with_options(1 << 16, &options(contested));
    let input: Vec<u8> = (0..4 * 4 * 16).map(|i| (i * 37 % 101) as u8).collect();
    let at = (board.place(&input), board.reserve(64));
    let pool = PoolProgram {
        channels: if bytes { 16 } else { 8 },
        ..PoolProgram::new(0, (4, 4), (3, 3), at)
    };
    let mut words = pool.words();
    if bytes {
        words.change(ppu::DataFormat::OFFSET, 16 * 4);
        words.change(ppu_rdma::DataFormat::OFFSET, 1);
    }
    ran(board, &words.finish(0x60), pool.dst, 64)
}

/// allbilly's addition, with the few registers that it writes.
fn few_registers(contested: Contested) -> Seen {
    let mut board = Board::with_options(1 << 16, &options(contested));
    let (_, _, at) = clients::operands(&mut board);
    let words = clients::allbilly(0x1082_02c0, 0x17849, Some(0x10001), true, at);
    ran(board, &words, at.2, clients::BYTES)
}

fn tf32(contested: Contested) -> Seen {
    matmul(contested, TF32_FP32, (4, 16, 16), |matmul| {
        // 1 + 2^-11 + 2^-20: cut to 1, rounded to 1 + 2^-10.
        let word = (1.0 + (-11f32).exp2() + (-20f32).exp2()).to_le_bytes();
        let at = matmul.conv.a as usize;
        let memory = &mut matmul.board.memory.bytes;
        memory[at..at + 4].copy_from_slice(&word);
    })
}

fn captured(contested: Contested) -> Seen {
    let mut board = Board::with_options(1 << 20, &options(contested));
    let conv = golden::captured(&mut board);
    ran(board, &conv.task(), conv.c, golden::BYTES)
}

fn show(switch: &str, facts: Contested) -> Seen {
    match switch {
        "short-height" => matmul(facts, FP16_FP32, (2, 64, 16), |_| {}),
        "line-rounding" => matmul(facts, INT8_INT32, (144, 224, 32), |matmul| {
            matmul.conv.data_banks -= 1;
        }),
        "weight-room" => {
            // Of the first, 16 kernels take 8 banks and 32 take 16. All of the
            // second take 20.
            let mut seen = matmul(facts, FP16_FP32, (4, 8192, 32), |_| {});
            seen.extend(matmul(facts, FP16_FP32, (4, 2560, 128), |_| {}));
            seen
        }
        "chain-pointer" => {
            let (outcome, outs) = later_matmuls(&options(facts));
            seen(&outcome, outs)
        }
        "int16-without-sum" => matmul(facts, INT16_INT32, (4, 32, 32), |matmul| {
            matmul.conv.qd = 0;
        }),
        "partial-group" => matmul(facts, INT8_INT32, (4, 32, 64), |matmul| {
            matmul.conv.po = 0;
            matmul.conv.size_e = 1;
            matmul.conv.writer.add = 8;
            matmul.conv.output.2 = 48;
        }),
        "output-ties" => matmul(facts, INT8_INT32, (4, 32, 32), |matmul| {
            matmul.conv.out_shift = 1 << 30 | 1;
        }),
        "output-scale" => matmul(facts, INT8_INT32, (4, 32, 32), |matmul| {
            matmul.conv.out_scale = 0x8000;
        }),
        "wide-rounding" => matmul(facts, INT8_INT32, (4, 32, 32), |matmul| {
            matmul.conv.out_shift = 1 << 31 | 1;
        }),
        "depthwise-pad" => captured(facts),
        "small-exponent" => flying(facts, 0.0, 0.0, |task| task.out.2 = 1 << 31 | 15 << 12),
        "flying-dual" => flying(facts, 1.0, 2.0, |task| task.mode = 0x17d49),
        "pooling-interrupt" => pooling(facts, false),
        "byte-pooling" => pooling(facts, true),
        "tf32-operand" => tf32(facts),
        "fp16-subnormals" => matmul(facts, FP16_FP32, (4, 32, 16), |matmul| {
            let at = matmul.conv.a as usize;
            // A subnormal, the least normal number, and the subnormal before it.
            for (index, bits) in [0x8001_u16, 0x0400, 0x03ff].into_iter().enumerate() {
                let at = at + 2 * index;
                matmul.board.memory.bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
            }
        }),
        "few-grains" => matmul(facts, FP16_FP32, (16, 64, 16), |matmul| {
            matmul.conv.grains = 8;
        }),
        "lut-index" => {
            let mut board = Board::with_options(1 << 17, &options(facts));
            let arguments: Vec<f16> = (0..64).map(|i| f16::from_f32(i as f32 * 0.0137)).collect();
            let gate = Activation::gate(logistic);
            let (results, _) = activations::run_on(&gate, &mut board, &arguments);
            results.into_iter().flat_map(f16::to_le_bytes).collect()
        }
        "average-rounding" => pooling(facts, false),
        "nan-compare" => flying(facts, f32::NAN, 1.0, |_| {}),
        "fresh-stages" => few_registers(facts),
        "wedge" => matmul(facts, INT8_INT32, (4, 32, 32), |matmul| {
            // A hang, and the reset after it.
            let words = matmul.conv.words().finish(0x05);
            assert!(!matmul.board.run(&words).completed());
        }),
        "core-idle-mainline" => matmul(facts, INT8_INT32, (4, 32, 32), |_| {}),
        "int8-reuse" => matmul(facts, INT8_INT32, (4, 32, 32), |matmul| {
            assert!(matmul.run().completed());
            matmul.conv.data_reuse = true;
        }),
        "int8-slack-bank" => matmul(facts, INT8_INT32, (32, 1024, 32), |_| {}),
        "program-at-zero" => {
            let mut matmul = BoardMatmul::seeded(INT8_INT32, (4, 32, 32), &options(facts), 1);
            // The features were at address 0.
            let words = matmul.conv.task();
            let moved = matmul.board.place(&matmul.board.bytes(0, 128));
            matmul.conv.a = moved;
            assert_eq!(matmul.conv.task().len(), words.len());
            let bytes = families::bytes(&matmul.conv.task());
            matmul.board.memory.bytes[..bytes.len()].copy_from_slice(&bytes);
            let outcome = matmul.board.kick(0, 0, words.len(), 1);
            seen(&outcome, matmul.out())
        }
        "over-read" => matmul(facts, INT8_INT32, (4, 32, 32), |matmul| {
            // The features are the last bytes of memory.
            let features = matmul.board.bytes(matmul.conv.a, 128);
            let at = matmul.board.memory.bytes.len() - features.len();
            matmul.board.memory.bytes[at..].copy_from_slice(&features);
            matmul.conv.a = at as u32;
        }),
        other => panic!("no program tells the sides of {other} apart"),
    }
}

#[test]
fn every_switch_changes_what_its_program_shows() {
    for switch in Contested::SWITCHES {
        let shown: Vec<Seen> = switch
            .sides
            .iter()
            .map(|side| {
                let mut facts = Contested::default();
                facts.set(&format!("{}={side}", switch.name)).unwrap();
                show(switch.name, facts)
            })
            .collect();
        let different = BTreeSet::from_iter(&shown).len();
        let (name, sides) = (switch.name, switch.sides);
        assert_eq!(different, sides.len(), "{name}: some of {sides:?} agree");
    }
}

#[test]
fn rounding_each_step_of_a_mean_stays_close() {
    let mut facts = Contested::default();
    let once = pooling(facts, false);
    facts.set("average-rounding=each").unwrap();
    let each = pooling(facts, false);
    let value = |seen: &Seen, i: usize| f16::from_le_bytes([seen[i], seen[i + 1]]).to_f32();
    for at in (1..65).step_by(2) {
        let (a, b) = (value(&once, at), value(&each, at));
        assert!((a - b).abs() <= a.abs() * 4e-3, "{a} and {b}");
    }
}
