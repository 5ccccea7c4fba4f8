// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line: an index that means nothing, words as they are, a statement.

use alloc::vec::Vec;

use super::error::AsmProblem;
use super::statement;
use super::token::{Failed, Tokens};
use crate::word::Word;

/// Adds the words of a line to `words`.
pub(super) fn line(text: &str, words: &mut Vec<Word>) -> Result<(), Failed> {
    let mut tokens = Tokens::new(text);
    // The disassembly numbers its lines; whoever edits it would not.
    let numbered = tokens
        .peek()
        .is_some_and(|token| token.is_index() && !token.is_word());
    if numbered {
        tokens.next();
        if tokens.peek().is_none() {
            tokens.some("a word (16 hexadecimal digits, or 0x and up to 16) or a statement")?;
        }
    }
    let first = words.len();
    while let Some(token) = tokens.peek().filter(|token| token.is_word()) {
        words.push(Word::from_bits(token.word()?));
        tokens.next();
        tokens.accept(",");
    }
    let Some(place) = tokens.peek() else {
        return Ok(());
    };
    let said = statement::statement(&mut tokens)?;
    match words.get(first..).unwrap_or_default() {
        [] => words.push(said),
        [word] if *word == said => {}
        [word] => {
            let problem = AsmProblem::WordDiffers {
                word: word.bits(),
                statement: said.bits(),
            };
            return Err((place.column, problem));
        }
        _ => return Err((place.column, AsmProblem::WordsBeforeStatement)),
    }
    Ok(())
}
