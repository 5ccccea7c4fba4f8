// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malformed programs: the model ends, does not panic, and accesses only what
//! the registers name.

use std::time::Duration;

use proptest::prelude::*;
use rknpu_regcmd::{Block, EnableMask, Word, regs};

use super::board::Board;
use super::extents::assert_within;
use families::conv::{ConvProgram, Rdma};
use families::flying::Flying;
use families::matmul::{self, FP16_FP16, INT8_INT32};
use families::pooling::PoolProgram;

/// A board for hostile programs, with a short time limit.
fn board() -> Board {
    Board::new(1 << 20).within(Duration::from_millis(2))
}

/// Programs of each family that are known to be good.
fn good_programs() -> Vec<Vec<Word>> {
    let at = (0x1000, 0x8000, 0x20000);
    let mut programs: Vec<_> = matmul::ALL
        .into_iter()
        .map(|ty| ty.matmul(8, 64, 64, at).task())
        .collect();
    let mut accumulate: ConvProgram = FP16_FP16.matmul(12, 64, 32, at);
    accumulate.ew_cfg = 0x1082_02c0;
    accumulate.rdma = Some(Rdma::operand(0x40000, 12, 12));
    programs.push(accumulate.task());
    let mut biased: ConvProgram = INT8_INT32.matmul(8, 64, 64, at);
    biased.bs_cfg = 0x20150;
    biased.rdma = Some(Rdma::bias(0x50000));
    programs.push(biased.task());
    programs.push(Flying::fp16(40, 0x1082_02c0, at).program());
    programs.push(Flying::int32_add(8, 64, at).program());
    let pool = PoolProgram {
        output: (4, 4),
        channels: 16,
        stride: (2, 2),
        ..PoolProgram::new(1, (9, 9), (3, 3), (0x1000, 0x8000))
    };
    programs.push(pool.program());
    programs
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
    prop::sample::select(known)
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
    (prop::sample::select(good_programs()), changes).prop_map(|(mut words, changes)| {
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
        let mut board = board();
        board.reserve(0x80000);
        board.run(&words);
        assert_within(&words, &board.memory.accesses)?;
        // The core still runs a good program.
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
    let mut words = INT8_INT32.matmul(8, 64, 64, (0, 0, 0)).words();
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
