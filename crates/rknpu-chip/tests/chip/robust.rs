// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that nobody should write: the model ends, does not panic, and
//! touches nothing that the registers do not name.

use std::time::Duration;

use proptest::prelude::*;
use rknpu_chip::Direction;
use rknpu_regcmd::{Block, DmaAccess, EnableMask, Word, extents, regs, tasks};

use super::board::Board;
use super::programs::{Conv, Flying, MatType, Pool, Rdma};

/// Memory of a board for hostile programs, and a short limit on their time.
fn board() -> Board {
    Board::new(1 << 20).within(Duration::from_millis(2))
}

/// A program of each family that is known to be good.
pub(crate) fn good_programs() -> Vec<Vec<Word>> {
    let at = (0x1000, 0x8000, 0x20000);
    let mut programs: Vec<_> = MatType::ALL
        .into_iter()
        .map(|ty| ty.matmul(8, 64, 64, at).program())
        .collect();
    let mut accumulate: Conv = MatType::Fp16Fp16.matmul(12, 64, 32, at);
    accumulate.ew_cfg = 0x1082_02c0;
    accumulate.rdma = Some(Rdma {
        src: 0x40000,
        ew: 0x40000 + 16 * 12,
        erdma: 0x4000_0008,
        ew_stride: 12,
        mode: 0x17d40,
        notch: 12,
        ..Rdma::default()
    });
    programs.push(accumulate.program());
    let mut biased: Conv = MatType::Int8Int32.matmul(8, 64, 64, at);
    biased.bs_cfg = 0x20150;
    biased.rdma = Some(Rdma {
        brdma: 2,
        bias: 0x50000,
        ..Rdma::default()
    });
    programs.push(biased.program());
    programs.push(Flying::fp16(40, 0x1082_02c0, at).program());
    programs.push(Flying::int32_add(8, 64, at).program());
    programs.push(
        Pool {
            input: (9, 9),
            output: (4, 4),
            channels: 16,
            method: 1,
            kernel: (3, 3),
            stride: (2, 2),
            pad: (0, 0, 0, 0),
            pad_value: 0,
            src: 0x1000,
            dst: 0x8000,
        }
        .program(),
    );
    programs
}

/// What the model did lies within what the registers say.
fn assert_within_extents(board: &Board, words: &[Word]) -> Result<(), TestCaseError> {
    let Some(task) = tasks(words).next() else {
        return Ok(());
    };
    let Ok(ranges) = extents(&task.regs, task.enable) else {
        return Ok(());
    };
    for &(master, direction, start, end) in &board.memory.accesses {
        let Some(engine) = master.engine() else {
            continue;
        };
        let access = match direction {
            Direction::Read => DmaAccess::Read,
            Direction::Write => DmaAccess::Write,
        };
        let known = ranges.iter().any(|range| {
            range.engine == engine
                && range.access == access
                && range.start <= start
                && end <= range.end
        });
        prop_assert!(
            known,
            "{master:?} {start:#x}..{end:#x} is not in {ranges:#x?}"
        );
    }
    Ok(())
}

#[test]
fn good_programs_touch_what_their_registers_say() {
    for words in good_programs() {
        let mut board = Board::strict(1 << 20);
        board.reserve(0x80000);
        board.run(&words).assert_clean();
        assert_within_extents(&board, &words).unwrap();
    }
}

/// A register of any block that a program may write.
pub(crate) fn any_register() -> impl Strategy<Value = (Block, u16)> {
    let known: Vec<_> = regs::all().map(|info| (info.block, info.offset)).collect();
    prop::sample::select(known)
}

pub(crate) fn any_value() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0u32..64,
        (0u32..32).prop_map(|bit| 1 << bit),
        (0u32..0x100).prop_map(|page| page << 12),
    ]
}

proptest! {
    #![proptest_config(test_support::cases(300))]

    #[test]
    fn changed_registers_end_and_stay_within_their_extents(
        which in 0usize..13,
        changes in prop::collection::vec((any_register(), any_value()), 1..4),
        bits in prop::collection::vec((0usize..120, 0u32..32), 0..3),
    ) {
        let mut words = good_programs()[which].clone();
        let trailer = words.split_off(words.len() - 4);
        for (index, bit) in bits {
            if let Some(word) = words.get_mut(index) {
                *word = Word::new(word.target(), word.offset(), word.value() ^ 1 << bit);
            }
        }
        for ((block, offset), value) in changes {
            if block != Block::Pc {
                words.push(Word::new(block.target(), offset, value));
            }
        }
        words.extend(trailer);
        let mut board = board();
        board.reserve(0x80000);
        board.run(&words);
        assert_within_extents(&board, &words)?;
        // The core is as good as new for the next one.
        let outcome = board.run(&good_programs()[0]);
        prop_assert!(outcome.completed());
    }

    #[test]
    fn random_registers_end(
        values in prop::collection::vec((any_register(), any_value()), 0..120),
        enable in 0u32..0x80,
    ) {
        let mut words: Vec<Word> = Block::ALL
            .into_iter()
            .filter(|&block| block != Block::Pc)
            .map(|block| Word::new(block.target(), block.page() << 12 | 4, 0xe))
            .collect();
        words.extend(
            values.into_iter().map(|((block, offset), value)| Word::new(block.target(), offset, value)),
        );
        words.push(Word::enable(EnableMask::from_bits_retain(enable)));
        board().run(&words);
    }

    #[test]
    fn random_words_end(bits in prop::collection::vec(any::<u64>(), 0..200), kind in 0u8..3) {
        let words: Vec<Word> = bits
            .into_iter()
            .map(|bits| match kind {
                0 => Word::from_bits(bits),
                // Plausible targets and offsets.
                1 => Word::new(1 | 0x100 << (bits >> 60 & 7), bits as u16 & 0x71fc, (bits >> 20) as u32),
                _ => Word::enable(EnableMask::from_bits_retain(bits as u32)),
            })
            .collect();
        board().run(&words);
    }
}

#[test]
fn a_task_that_no_driver_waits_for_is_not_computed() {
    use rknpu_regcmd::regs::cna;
    let mut words = MatType::Int8Int32.matmul(8, 64, 64, (0, 0, 0)).words();
    // 2047 x 2047 pixels of 65535 channels, all at the same address.
    words.patch::<cna::FcDataSize0>(2047 << 16 | 2047);
    words.patch::<cna::FcDataSize1>(65535);
    words.patch::<cna::DmaCon1>(0);
    words.patch::<cna::DmaCon2>(-2047i32 as u32 & 0x0fff_ffff);
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
