// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary words through everything that looks at words.

use arbitrary::Unstructured;
use rknpu_regcmd::{
    Before, Item, LintContext, RegisterFile, Tasks, Word, decode, disassemble, encode, extents,
    lint, regs, tasks,
};

use crate::words;

/// Decodes, encodes, prints, takes apart, measures and lints. The first byte
/// says whether the rest is words as they are, or choices.
pub fn disassembly(data: &[u8]) {
    let words = match data.split_first() {
        Some((0, raw)) => raw
            .as_chunks::<8>()
            .0
            .iter()
            .map(|&word| Word::from_bits(u64::from_le_bytes(word)))
            .collect(),
        Some((_, choices)) => {
            let Ok(words) = words::program(&mut Unstructured::new(choices)) else {
                return;
            };
            words
        }
        None => Vec::new(),
    };
    assert_eq!(encode(decode(&words)).collect::<Vec<_>>(), words);
    text_says_all(&words);
    let after = walk(&words);
    for before in [Before::Unknown, Before::Reset, Before::Known(after)] {
        for continues_job in [false, true] {
            let context = LintContext {
                before: before.clone(),
                continues_job,
            };
            for finding in lint(&words, &context) {
                assert!(
                    finding.word.is_none_or(|word| word < words.len()),
                    "{finding}"
                );
            }
        }
    }
}

/// The disassembly gives back the words, by their bits, and by their meaning
/// where that is a register.
fn text_says_all(words: &[Word]) {
    let text = disassemble(words);
    let mut lines = text.lines();
    for (&word, item) in words.iter().zip(decode(words)) {
        let line = lines.next().unwrap();
        let mut parts = line.split_whitespace().skip(1);
        let bits = u64::from_str_radix(parts.next().unwrap(), 16).unwrap();
        assert_eq!(Word::from_bits(bits), word, "{line}");
        if let Item::Write { .. } = item {
            let name = parts.next().unwrap();
            let value = parts.nth(1).unwrap().trim_start_matches("0x");
            let value = u32::from_str_radix(value, 16).unwrap();
            let (block, register) = name.split_once('.').unwrap();
            let info = regs::all()
                .find(|info| info.block.name() == block && info.name == register)
                .unwrap();
            assert_eq!(
                Word::new(info.block.target(), info.offset, value),
                word,
                "{line}"
            );
        }
    }
    assert_eq!(lines.next(), None);
}

/// Walks through the tasks; the registers at the end.
fn walk(words: &[Word]) -> RegisterFile {
    let mut end = 0;
    let mut last = RegisterFile::new();
    for task in tasks(words) {
        assert_eq!(task.words.start, end);
        assert!(words[task.words.clone()].last().unwrap().is_enable());
        end = task.words.end;
        if let Ok(extents) = extents(&task.regs, task.enable) {
            for extent in extents {
                assert!(
                    extent.start < extent.end && extent.end <= 1 << 32,
                    "{extent}"
                );
            }
        }
        last = task.regs;
    }
    assert!(!words[end..].iter().any(|word| word.is_enable()));
    assert!(Tasks::after(&words[end..], last.clone()).next().is_none());
    last
}
