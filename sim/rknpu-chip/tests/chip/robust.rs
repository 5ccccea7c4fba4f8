// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malformed programs in small memory: the model ends, does not panic, and accesses only what the
//! registers name.

use std::time::Duration;

use families::matmul::INT8_INT32;
use proptest::prelude::*;
use proptest::sample::select;
use rknpu_regcmd::regs::{self, cna};
use rknpu_regcmd::{Block, EnableMask, Word};

use super::board::{Board, PING_PONG};
use super::extents::{assert_within, good_programs};

/// A board with a short time limit.
fn small_board() -> Board {
    Board::new(1 << 20).within(Duration::from_millis(2))
}

#[test]
fn good_programs_touch_what_their_registers_say() {
    for words in good_programs(0) {
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
    (select(good_programs(0)), changes).prop_map(|(mut words, changes)| {
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
        let mut board = small_board();
        board.reserve(0x80000);
        board.run(&words);
        assert_within(&words, &board.memory.accesses)?;
        // The core still runs a good program.
        let outcome = board.run(&good_programs(0)[0]);
        prop_assert!(outcome.completed());
    }

    #[test]
    fn random_registers_end(
        writes in prop::collection::vec((any_register(), any_value()), 0..120),
        enable in 0u32..0x80,
    ) {
        let blocks = Block::ALL.into_iter().filter(|&block| block != Block::Pc);
        let pointers = blocks.map(|block| ((block, block.page() << 12 | 4), PING_PONG));
        let mut words: Vec<Word> = pointers
            .chain(writes)
            .map(|((block, offset), value)| Word::new(block.target(), offset, value))
            .collect();
        words.push(Word::enable(EnableMask::from_bits_retain(enable)));
        small_board().run(&words);
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
