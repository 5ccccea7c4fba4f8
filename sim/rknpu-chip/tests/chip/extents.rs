// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the extents of rknpu-regcmd with the chip's accesses: matmuls, and small, odd
//! geometries of convolution, flying tasks and pooling. Memory never faults, so no access goes
//! unseen.

use std::time::Duration;

use families::CONV_RDMA;
use families::conv::Rdma;
use families::flying::Flying;
use families::matmul::{self, FP16_FP16, INT8_INT32};
use families::pooling::PoolProgram;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use rknpu_chip::{ChipOptions, Master};
use rknpu_regcmd::regs::{self, dpu, dpu_rdma};
use rknpu_regcmd::{Extent, Word, extents, tasks};

use super::board::{Access, Board, PROGRAM};

/// A start from which negative strides do not reach below address 0.
const HIGH: u32 = 0x1000_0000;

/// Programs of each family that are known to be good, with buffers in the 512 KiB from `start` on.
pub(crate) fn good_programs(start: u32) -> Vec<Vec<Word>> {
    let at = (start + 0x1000, start + 0x8000, start + 0x20000);
    let mut programs: Vec<_> = matmul::ALL
        .into_iter()
        .map(|ty| ty.matmul(8, 64, 64, at).task())
        .collect();
    let mut accumulate = FP16_FP16.matmul(12, 64, 32, at);
    accumulate.ew_cfg = 0x1082_02c0;
    accumulate.rdma = Some(Rdma::operand(start + 0x40000, 12, 12));
    let mut biased = INT8_INT32.matmul(8, 64, 64, at);
    biased.bs_cfg = 0x20150;
    biased.rdma = Some(Rdma::bias(start + 0x50000));
    let mut both_stages = biased.words();
    both_stages
        .change(dpu_rdma::NrdmaCfg::OFFSET, 2)
        .change(dpu_rdma::BnBaseAddr::OFFSET, start + 0x60000)
        .change(dpu::BnCfg::OFFSET, 0x20150);
    let pool = PoolProgram {
        output: (4, 4),
        channels: 16,
        stride: (2, 2),
        ..PoolProgram::new(1, (9, 9), (3, 3), (at.0, at.1))
    };
    programs.extend([
        accumulate.task(),
        biased.task(),
        both_stages.finish(CONV_RDMA),
        Flying::fp16(40, 0x1082_02c0, at).program(),
        Flying::int32_add(8, 64, at).program(),
        pool.program(),
    ]);
    programs
}

/// The accesses of a program.
fn run(words: &[Word]) -> Vec<Access> {
    let board = Board::of_zeros(words, &ChipOptions::default());
    let mut board = board.within(Duration::from_millis(2));
    board.kick(0, PROGRAM, words.len(), 1);
    board.memory.accesses
}

/// Checks that accesses lie in extents of their engine, if those are known.
pub(crate) fn assert_within(words: &[Word], accesses: &[Access]) -> Result<(), TestCaseError> {
    let Some(task) = tasks(words).next() else {
        return Ok(());
    };
    let Ok(ranges) = extents(&task.regs, task.enable) else {
        return Ok(());
    };
    for &(master, direction, start, end) in accesses {
        let Master::Engine(engine) = master else {
            continue;
        };
        let covers = |range: &Extent| {
            (range.engine, engine.direction()) == (engine, direction)
                && range.start <= start
                && end <= range.end
        };
        prop_assert!(
            ranges.iter().any(covers),
            "{master:?} {start:#x}..{end:#x} is not in {ranges:#x?}"
        );
    }
    Ok(())
}

/// Values of a field, mostly small: they keep a task small enough to run.
fn field_value() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 0..24u32,
        3 => 0..400u32,
        1 => 0..40_000u32,
        1 => (1..40u32).prop_map(u32::wrapping_neg),
    ]
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// A matmul also touches the first and the last byte of each extent.
    #[test]
    fn of_matmuls_are_tight(
        ty in select(matmul::ALL.to_vec()),
        (m, k, n) in (1..12u32, 1..6u32, 1..4u32),
        rdma: bool,
    ) {
        let mut conv = matmul::matmul(ty, 4 * m, k * ty.depth, n * ty.group);
        conv.rdma = rdma.then(Rdma::default);
        let words = conv.task();
        let task = tasks(&words).next().unwrap();
        let touched = run(&words);
        assert_within(&words, &touched)?;
        for extent in extents(&task.regs, task.enable).unwrap() {
            let engine_bytes = || touched.iter().filter(|(m, ..)| *m == extent.engine.into());
            prop_assert_eq!(engine_bytes().map(|t| t.2).min(), Some(extent.start));
            prop_assert_eq!(engine_bytes().map(|t| t.3).max(), Some(extent.end));
        }
    }
}

/// Pooling whose PPU and PPU_RDMA have the same input size.
fn pooling() -> impl Strategy<Value = Vec<Word>> {
    let sizes = ((1..20u32, 1..20u32), (1..6u32, 1..6u32), 1..64u32);
    (0..3u32, sizes).prop_map(|(method, (input, kernel, channels))| {
        let pool = PoolProgram {
            channels,
            ..PoolProgram::new(method, input, kernel, (HIGH, HIGH + 0x8000))
        };
        pool.program()
    })
}

proptest! {
    #![proptest_config(test_support::cases(800))]

    /// A program with some fields changed at random: odd sizes, strides and modes, mostly
    /// nonsense.
    #[test]
    fn of_any_geometry_cover_all_accesses(
        mut words in prop_oneof![3 => select(good_programs(HIGH)), 1 => pooling()],
        changes in prop::collection::vec((any::<(Index, Index)>(), field_value()), 1..8),
    ) {
        let trailer = words.len() - 4;
        for ((word, field), value) in changes {
            let word = &mut words[word.index(trailer)];
            let field = field.get(regs::lookup(word.offset()).unwrap().fields);
            let rest = word.value() & !(field.max() << field.lsb);
            let value = rest | (value & field.max()) << field.lsb;
            *word = Word::new(word.target(), word.offset(), value);
        }
        assert_within(&words, &run(&words))?;
    }
}
