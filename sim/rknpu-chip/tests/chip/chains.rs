// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chains: one kick runs several programs, each of which links to the next.
//! Every segment has separate operands, so results show whose were used.

use half::f16;
use rknpu_chip::{ChipOptions, Effect, Level};
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma, ppu};

use super::board::{Board, Outcome, PING_PONG, SENTINEL};
use super::board_matmul::{self, assert_trap};
use super::convolution::Tensors;
use families::conv::ConvProgram;
use families::flying::Flying;
use families::matmul::{FP16_FP32, INT8_INT32, OperandTypes};
use families::pooling::PoolProgram;
use families::{CONV, FLYING, POOLING, Words, amounts, write};

const SEGMENTS: usize = 3;

/// Runs `tasks` tasks of programs that link to each other.
fn run(board: &mut Board, segments: Vec<(Words, u32)>, tasks: usize) -> Outcome {
    let mut next: Option<(u32, Vec<Word>)> = None;
    for (words, enable) in segments.into_iter().rev() {
        let link = next.as_ref().map(|(at, program)| (*at, amounts(program)));
        let words = words.finish_linked(link, enable);
        next = Some((board.place_program(&words), words));
    }
    let (at, words) = next.expect("a chain has segments");
    board.kick(0, at, words.len(), tasks as u32)
}

/// Matmuls of one shape, with separate operands, scales and results.
struct Matmuls {
    board: Board,
    tasks: [ConvProgram; SEGMENTS],
    len: usize,
}

impl Matmuls {
    fn new(ty: OperandTypes, options: &ChipOptions) -> Self {
        let shape = board_matmul::shape((8, 64, 32));
        let mut board = Board::with_options(1 << 20, options);
        // Address 0 in a trailer is no link.
        board.reserve(1);
        let tasks = [1, 2, 3].map(|scale| {
            let (_, mut conv, _) = Tensors::place(&mut board, &shape, ty, false, scale.into());
            if ty == INT8_INT32 {
                conv.out_scale = scale;
            }
            // Results are the same without the sums (E-integer-chain-exact).
            conv.qd = 1;
            conv
        });
        let len = shape.pixels() * shape.channels_out * ty.out_bytes();
        Self { board, tasks, len }
    }

    /// The matmuls, one in each segment, changed by segment number.
    fn segments(&self, change: impl Fn(usize, &mut Words)) -> Vec<(Words, u32)> {
        let tasks = self.tasks.iter().enumerate();
        tasks
            .map(|(segment, conv)| {
                let mut words = conv.words();
                change(segment, &mut words);
                (words, CONV)
            })
            .collect()
    }

    fn run(&mut self, segments: Vec<(Words, u32)>) -> Outcome {
        let count = segments.len();
        run(&mut self.board, segments, count)
    }

    /// Checks that a chain ran, and that each segment used all its own registers.
    fn assert_right(&mut self, outcome: &Outcome) {
        assert!(outcome.completed());
        assert_eq!(outcome.traps(), ["T08-core-pointer-in-chain"]);
        for segment in 0..SEGMENTS {
            assert_eq!(self.out(segment), self.alone(segment, segment));
        }
    }

    fn out(&self, segment: usize) -> Vec<u8> {
        self.board.bytes(self.tasks[segment].c, self.len)
    }

    /// The result of one segment's operands with another segment's DPU, run
    /// alone on another core.
    fn alone(&mut self, operands: usize, dpu: usize) -> Vec<u8> {
        let c = self.board.reserve(self.len);
        let conv = ConvProgram {
            a: self.tasks[operands].a,
            b: self.tasks[operands].b,
            c,
            ..self.tasks[dpu].clone()
        };
        self.board.run_on(1, &conv.task()).assert_clean();
        self.board.bytes(c, self.len)
    }
}

/// Options with a side of `chain-pointer`.
fn options(side: &str) -> ChipOptions {
    let mut options = ChipOptions::default();
    let fact = format!("chain-pointer={side}");
    options.contested.set(&fact).unwrap();
    options
}

/// Runs a chain whose later segments write only the DPU's S_POINTER. Returns
/// the results of those segments.
pub(crate) fn later_matmuls(options: &ChipOptions) -> (Outcome, Vec<u8>) {
    let mut matmuls = Matmuls::new(INT8_INT32, options);
    let outcome = matmuls.run(matmuls.segments(|_, _| {}));
    let outs = [matmuls.out(1), matmuls.out(2)].concat();
    (outcome, outs)
}

#[test]
fn t08_later_segments_run_what_their_pointers_select() {
    for (side, core) in [("follows", Effect::Note), ("repeats", Effect::Garbage)] {
        for (core_pointers, dpu_pointer) in
            [(true, true), (false, true), (true, false), (false, false)]
        {
            let mut matmuls = Matmuls::new(INT8_INT32, &options(side));
            let segments = matmuls.segments(|segment, words| {
                if segment > 0 && !dpu_pointer {
                    words.remove(dpu::SPointer::OFFSET);
                }
                if segment > 0 && core_pointers {
                    let offsets = [cna::SPointer::OFFSET, core::SPointer::OFFSET];
                    let first = offsets.map(|offset| write(offset, PING_PONG));
                    words.0.splice(..0, first);
                }
            });
            let outcome = matmuls.run(segments);
            assert!(outcome.completed());
            let which = format!("{side:?}, CNA and CORE {core_pointers}, DPU {dpu_pointer}");
            for segment in 0..SEGMENTS {
                let own_operands = core_pointers || side == "follows";
                let operands = if own_operands { segment } else { 0 };
                let dpu = if dpu_pointer { segment } else { 0 };
                let expected = matmuls.alone(operands, dpu);
                assert_eq!(matmuls.out(segment), expected, "segment {segment}: {which}");
            }
            let mut expected = Vec::new();
            if !core_pointers {
                assert_trap(&outcome, "T08-core-pointer-in-chain", core);
                expected.push("T08-core-pointer-in-chain");
            }
            if !dpu_pointer {
                assert_trap(&outcome, "T08-no-pointer-in-chain", Effect::Garbage);
                expected.push("T08-no-pointer-in-chain");
            }
            assert_eq!(outcome.traps(), expected, "{which}");
        }
    }
}

/// allbilly's measurement: additions without S_POINTER write all outputs, each
/// with the first sum.
#[test]
fn t08_chained_additions_without_pointers_repeat_the_first_sum() {
    const VALUES: [(f32, f32); SEGMENTS] = [(3.0, 5.0), (7.0, 11.0), (13.0, 17.0)];
    const ADD: u32 = 0x1082_02c0;
    let atom = |x: f32| [f16::from_f32(x).to_le_bytes(); 8].concat();
    for pointers in [true, false] {
        let mut board = Board::new(1 << 18);
        board.reserve(1);
        let tasks = VALUES.map(|(a, b)| {
            let at = (
                board.place(&atom(a)),
                board.place(&atom(b)),
                board.reserve(16),
            );
            Flying::fp16(1, ADD, at)
        });
        let segments = tasks.iter().enumerate().map(|(segment, task)| {
            let mut words = task.words();
            if segment > 0 && !pointers {
                words
                    .remove(dpu::SPointer::OFFSET)
                    .remove(dpu_rdma::SPointer::OFFSET);
            }
            (words, FLYING)
        });
        let outcome = run(&mut board, segments.collect(), SEGMENTS);
        if pointers {
            outcome.assert_clean();
        } else {
            assert_trap(&outcome, "T08-no-pointer-in-chain", Effect::Garbage);
        }
        for (segment, task) in tasks.iter().enumerate() {
            let (a, b) = VALUES[if pointers { segment } else { 0 }];
            assert_eq!(board.bytes(task.dst, 16), atom(a + b), "segment {segment}");
        }
    }
}

/// CNA and CORE keep the kernel's pointer until they run in a kick.
#[test]
fn t08_the_kernels_pointer_counts_until_cna_and_core_have_run() {
    let run = |convs: usize| {
        let options = options("repeats");
        let mut matmuls = Matmuls::new(INT8_INT32, &options);
        let zeros = matmuls.board.place(&[0; 16]);
        let sums = matmuls.board.reserve(16);
        let flying = Flying::fp16(1, 0x1082_02c0, (zeros, zeros, sums));
        let mut segments = vec![(flying.words(), FLYING)];
        segments.extend(matmuls.segments(|_, _| {}).into_iter().take(convs));
        let outcome = matmuls.run(segments);
        assert!(outcome.completed());
        (outcome, matmuls)
    };
    let (outcome, mut matmuls) = run(1);
    outcome.assert_clean();
    assert_eq!(matmuls.out(0), matmuls.alone(0, 0));
    let (outcome, mut matmuls) = run(2);
    assert_trap(&outcome, "T08-core-pointer-in-chain", Effect::Garbage);
    assert_eq!(matmuls.out(1), matmuls.alone(0, 1));
}

/// A block that has not run in this kick has nothing to repeat.
#[test]
fn t05_a_block_that_starts_in_a_later_segment_needs_a_pointer() {
    let run = |pointers: bool| {
        let mut matmuls = Matmuls::new(INT8_INT32, &ChipOptions::default());
        let at = (
            matmuls.board.place(&[0x3c; 6 * 6 * 16]),
            matmuls.board.reserve(5 * 5 * 16),
        );
        let pool = PoolProgram::new(1, (6, 6), (2, 2), at);
        let mut words = pool.words();
        if !pointers {
            words.remove(ppu::SPointer::OFFSET);
        }
        let mut segments = matmuls.segments(|_, _| {});
        segments.truncate(1);
        segments.push((words, POOLING));
        let outcome = matmuls.run(segments);
        (outcome, matmuls.board.bytes(pool.dst, 5 * 5 * 16))
    };
    let (outcome, pooled) = run(true);
    outcome.assert_clean();
    assert!(pooled.iter().all(|&b| b == 0x3c));
    let (outcome, pooled) = run(false);
    assert_eq!(outcome.raw_status, 0);
    assert_trap(&outcome, "T05-no-pointer", Effect::Hang);
    assert!(pooled.iter().all(|&b| b == SENTINEL));
}

/// Like the vendor's runtime (captured by allbilly): two whole segments, one
/// for each register group of CNA and CORE, then changes of addresses.
#[test]
fn t08_two_whole_segments_fill_both_register_groups() {
    let options = options("follows");
    let mut matmuls = Matmuls::new(INT8_INT32, &options);
    for task in &mut matmuls.tasks {
        task.out_scale = 1;
    }
    let last = matmuls.tasks[2].clone();
    let mut segments = matmuls.segments(|_, _| {});
    let changes = vec![
        write(dpu::SPointer::OFFSET, PING_PONG),
        write(cna::FeatureDataAddr::OFFSET, last.a),
        write(cna::DcompAddr0::OFFSET, last.b),
        write(dpu::DstBaseAddr::OFFSET, last.c),
    ];
    segments[2] = (Words(changes), CONV);
    let outcome = matmuls.run(segments);
    matmuls.assert_right(&outcome);
}

/// The accumulators of each task begin at zero, with QD_EN or without
/// (E-integer-chain-exact).
#[test]
fn matmuls_of_a_chain_are_right_without_the_sum() {
    for ty in [INT8_INT32, FP16_FP32] {
        let mut matmuls = Matmuls::new(ty, &ChipOptions::default());
        for task in &mut matmuls.tasks {
            task.qd = 0;
        }
        let outcome = matmuls.run(matmuls.segments(|_, _| {}));
        matmuls.assert_right(&outcome);
    }
}

#[test]
fn t10_a_chain_needs_links_and_one_task_follows_none() {
    let untouched =
        |matmuls: &Matmuls, segment| matmuls.out(segment).iter().all(|&b| b == SENTINEL);
    let mut matmuls = Matmuls::new(INT8_INT32, &ChipOptions::default());
    let words = matmuls.tasks[0].task();
    let at = matmuls.board.place_program(&words);
    let outcome = matmuls.board.kick(0, at, words.len(), 2);
    assert!(outcome.completed());
    assert_trap(&outcome, "T10-missing-link", Effect::NoWrite);
    assert!(!untouched(&matmuls, 0) && untouched(&matmuls, 1));
    // With the mainline driver's kick, a link is not followed.
    let mut matmuls = Matmuls::new(INT8_INT32, &ChipOptions::default());
    let segments = matmuls.segments(|_, _| {});
    run(&mut matmuls.board, segments, 1).assert_clean();
    assert!(!untouched(&matmuls, 0) && untouched(&matmuls, 1));
}

#[test]
fn strict_ends_a_chain_that_repeats_its_first_task() {
    for (side, completes) in [("follows", true), ("repeats", false)] {
        let options = ChipOptions {
            level: Level::Strict,
            ..options(side)
        };
        let (outcome, _) = later_matmuls(&options);
        assert_eq!(outcome.completed(), completes, "{side:?}");
    }
}
