// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the extents of rknpu-regcmd with the chip's accesses: matmuls, and
//! small, odd geometries of convolution, flying tasks and pooling, in memory that never faults, so
//! that no access goes unseen. Then malformed programs in small memory: the model ends, does not
//! panic, and accesses only what the registers name.

use std::time::Duration;

use families::CONV_RDMA;
use families::conv::Rdma;
use families::flying::Flying;
use families::matmul::{self, FP16_FP16, INT8_INT32};
use families::pooling::PoolProgram;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use rknpu_chip::{ChipOptions, Master};
use rknpu_regcmd::regs::{self, cna, dpu, dpu_rdma};
use rknpu_regcmd::{Block, Extent, Word, extents, tasks};

use super::board::{Access, Board, PROGRAM};

/// Programs of each family that are known to be good.
fn good_programs() -> Vec<Vec<Word>> {
    let at = (0x1000, 0x8000, 0x20000);
    let mut programs: Vec<_> = matmul::ALL
        .into_iter()
        .map(|ty| ty.matmul(8, 64, 64, at).task())
        .collect();
    let mut accumulate = FP16_FP16.matmul(12, 64, 32, at);
    accumulate.ew_cfg = 0x1082_02c0;
    accumulate.rdma = Some(Rdma::operand(0x40000, 12, 12));
    let mut biased = INT8_INT32.matmul(8, 64, 64, at);
    biased.bs_cfg = 0x20150;
    biased.rdma = Some(Rdma::bias(0x50000));
    let mut both_stages = biased.words();
    both_stages
        .change(dpu_rdma::NrdmaCfg::OFFSET, 2)
        .change(dpu_rdma::BnBaseAddr::OFFSET, 0x60000)
        .change(dpu::BnCfg::OFFSET, 0x20150);
    let pool = PoolProgram {
        output: (4, 4),
        channels: 16,
        stride: (2, 2),
        ..PoolProgram::new(1, (9, 9), (3, 3), (0x1000, 0x8000))
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
            let of_engine = || touched.iter().filter(|(m, ..)| *m == extent.engine.into());
            prop_assert_eq!(of_engine().map(|t| t.2).min(), Some(extent.start));
            prop_assert_eq!(of_engine().map(|t| t.3).max(), Some(extent.end));
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(600))]

    /// A good program with some fields changed at random: odd sizes, strides
    /// and modes, mostly nonsense.
    #[test]
    fn of_any_geometry_cover_all_accesses(
        mut words in select(good_programs()),
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

#[test]
fn good_programs_touch_what_their_registers_say() {
    for words in good_programs() {
        let mut board = Board::strict(1 << 20);
        board.reserve(0x80000);
        board.run(&words).assert_clean();
        assert_within(&words, &board.memory.accesses).unwrap();
    }
}

/// A register of any block that a program may write.
fn any_register() -> impl Strategy<Value = (Block, u16)> {
    let known: Vec<_> = regs::all().map(|info| (info.block, info.offset)).collect();
    select(known)
}

fn any_value() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0u32..64,
        (0u32..32).prop_map(|bit| 1 << bit),
        (0u32..0x100).prop_map(|page| page << 12),
    ]
}

/// A good program, with other register writes before its trailer.
fn changed_program() -> impl Strategy<Value = Vec<Word>> {
    let changes = prop::collection::vec((any_register(), any_value()), 0..4);
    (select(good_programs()), changes).prop_map(|(mut words, changes)| {
        let trailer = words.split_off(words.len() - 4);
        for ((block, offset), value) in changes {
            if block != Block::Pc {
                words.push(Word::new(block.target(), offset, value));
            }
        }
        words.extend(trailer);
        words
    })
}

proptest! {
    #![proptest_config(test_support::cases(300))]

    #[test]
    fn changed_registers_end_and_stay_within_their_extents(
        mut words in changed_program(),
        bits in prop::collection::vec((0usize..120, 0u32..32), 0..3),
    ) {
        let trailer = words.len() - 4;
        for (index, bit) in bits {
            if let Some(word) = words[..trailer].get_mut(index) {
                *word = Word::new(word.target(), word.offset(), word.value() ^ 1 << bit);
            }
        }
        let mut board = Board::new(1 << 20).within(Duration::from_millis(2));
        board.reserve(0x80000);
        board.run(&words);
        assert_within(&words, &board.memory.accesses)?;
        // The core still runs a good program.
        let outcome = board.run(&good_programs()[0]);
        prop_assert!(outcome.completed());
    }
}

#[test]
fn a_task_that_no_driver_waits_for_is_not_computed() {
    let mut words = INT8_INT32.matmul(8, 64, 64, (0, 0, 0)).words();
    // 2047 x 2047 pixels of 65535 channels, all at the same address.
    words.change(cna::FcDataSize0::OFFSET, 2047 << 16 | 2047);
    words.change(cna::FcDataSize1::OFFSET, 65535);
    words.change(cna::DmaCon1::OFFSET, 0);
    words.change(cna::DmaCon2::OFFSET, -2047i32 as u32 & 0x0fff_ffff);
    let mut board = Board::new(1 << 20);
    let outcome = board.run(&words.finish(0x0d));
    assert!(!outcome.completed());
    assert!(
        outcome.traps().contains(&"F02-too-long"),
        "{:?}",
        outcome.traps()
    );
    assert!(outcome.device_time > Duration::from_millis(500));
}
