// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes arbitrary words to everything that reads words.
//!
//! The bytes are command words, or text. Decoding loses nothing, and the text assembles
//! to the same words. Other text assembles, or gives an error with its place. `tasks`,
//! `extents` and `lint` accept any words.

use arbitrary::Unstructured;
use rknpu_regcmd::{
    Before, Iova, LintContext, RegisterFile, Word, assemble, decode, disassemble, extents, lint,
    statements, tasks, tasks_after,
};

use crate::words;

/// Decodes, encodes, prints, assembles and lints words, walks through their tasks, and
/// computes their extents. The first byte says whether the rest is words (0), text for the
/// assembler (2), or choices for words.
pub fn disassembly(data: &[u8]) {
    let words = match data.split_first() {
        Some((0, raw)) => raw
            .as_chunks::<8>()
            .0
            .iter()
            .map(|&word| Word::from_bits(u64::from_le_bytes(word)))
            .collect(),
        Some((2, text)) => match assemble(&String::from_utf8_lossy(text)) {
            Ok(words) => words,
            Err(error) => {
                assert!(error.line > 0 && error.column > 0);
                return;
            }
        },
        Some((_, choices)) => {
            let Ok(words) = words::program(&mut Unstructured::new(choices)) else {
                return;
            };
            words
        }
        None => Vec::new(),
    };
    assert_eq!(
        decode(&words).map(|item| item.word()).collect::<Vec<_>>(),
        words
    );
    text_says_all(&words);
    let after = walk(&words);
    for before in [Before::Unknown, Before::Reset, Before::Known(after)] {
        for continues_job in [false, true] {
            let context = LintContext {
                before: before.clone(),
                continues_job,
                ..LintContext::default()
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

/// Checks that disassembly and statements assemble to the same words.
fn text_says_all(words: &[Word]) {
    for text in [disassemble(words), statements(words)] {
        assert_eq!(text.lines().count(), words.len());
        assert_eq!(assemble(&text).unwrap(), words, "{text}");
    }
}

/// Walks through the tasks. Returns the registers at the end.
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
                    extent.start < extent.end && extent.end <= Iova::END,
                    "{extent}"
                );
            }
        }
        last = task.regs;
    }
    assert!(!words[end..].iter().any(|word| word.is_enable()));
    assert!(tasks_after(&words[end..], last.clone()).next().is_none());
    last
}
