// SPDX-License-Identifier: MIT OR Apache-2.0
//! No words make this crate panic or hang.

use std::sync::LazyLock;

use proptest::prelude::*;
use rknpu_regcmd::{
    Before, EnableMask, Iova, LintContext, Word, decode, disassemble, extents, lint, regs, tasks,
};

/// Words of every meaning, most of them writes of known registers: random bits are
/// nearly all unknown.
pub(crate) fn any_word() -> impl Strategy<Value = Word> {
    let registers: Vec<_> = regs::all().collect();
    let enable = prop_oneof![
        prop::sample::select(vec![0x0d, 0x1d, 0x18, 0x60, 0x7d]),
        0u32..0x200,
        any::<u32>(),
    ];
    let targets = vec![
        0, 1, 0x41, 0x81, 0x101, 0x201, 0x801, 0x1001, 0x2001, 0x4001, 0x8001,
    ];
    let value = prop_oneof![any::<u32>(), Just(0), 0u32..64, Just(u32::MAX)];
    prop_oneof![
        1 => any::<u64>().prop_map(Word::from_bits),
        1 => (prop::sample::select(targets), any::<u16>(), any::<u32>())
            .prop_map(|(target, offset, value)| Word::new(target, offset, value)),
        1 => prop::sample::select(&[Word::MARKER, Word::NOP][..]),
        2 => enable.prop_map(|mask| Word::enable(EnableMask::from_bits_retain(mask))),
        12 => (prop::sample::select(registers), value).prop_map(|(info, value)| info.write(value)),
    ]
}

pub(crate) static KNOWN: LazyLock<Vec<families::Sample>> = LazyLock::new(families::all);

fn try_all(words: &[Word]) {
    assert_eq!(
        decode(words).map(|item| item.word()).collect::<Vec<_>>(),
        words
    );
    assert_eq!(disassemble(words).lines().count(), words.len());
    for task in tasks(words) {
        if let Ok(extents) = extents(&task.regs, task.enable) {
            for extent in extents {
                assert!(
                    extent.start < extent.end && extent.end <= Iova::END,
                    "{extent}"
                );
            }
        }
    }
    for before in [Before::Unknown, Before::Reset] {
        let context = LintContext {
            before,
            ..LintContext::default()
        };
        for finding in lint(words, &context) {
            let _ = finding.to_string();
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(256))]

    #[test]
    fn random_words_do_no_harm(words in prop::collection::vec(any_word(), 0..64)) {
        try_all(&words);
    }

    /// Programs that work, with some words changed, which reach more of the code than
    /// random ones.
    #[test]
    fn mutated_programs_do_no_harm(
        sample in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_word()), 1..6),
        bits in prop::collection::vec((any::<prop::sample::Index>(), 0u32..64), 0..4),
    ) {
        let mut words = sample.get(&KNOWN).words.clone();
        for (index, word) in changes {
            *index.get_mut(&mut words) = word;
        }
        for (index, bit) in bits {
            let word = index.get_mut(&mut words);
            *word = Word::from_bits(word.bits() ^ 1 << bit);
        }
        try_all(&words);
    }
}
