// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line: an optional index, which is ignored, then words as numbers, or a
//! statement as the disassembly writes it, or one word and its statement.

use alloc::format;
use alloc::vec::Vec;

use super::register;
use super::token::{LineError, Tokens};
use crate::word::{EnableMask, Word};

const STATEMENT: &str =
    "a register such as CNA.CBUF_CON0, `enable`, `marker`, `nop`, `unknown` or a word";

pub(super) fn line(text: &str, words: &mut Vec<Word>) -> Result<(), LineError> {
    let mut tokens = Tokens::new(text);
    // The disassembly numbers its lines; an edited text need not keep the numbers
    // right.
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
    let said = statement(&mut tokens)?;
    match words.get(first..).unwrap_or_default() {
        [] => words.push(said),
        [word] if *word == said => {}
        [word] => {
            return Err(place.wrong(format!(
                "the word {:016x} differs from its line, {:016x}: correct one, or remove the word",
                word.bits(),
                said.bits()
            )));
        }
        _ => return Err(place.wrong("a statement can follow one word, not several")),
    }
    Ok(())
}

/// Reads the rest of the line as a statement, and returns its word.
fn statement(tokens: &mut Tokens<'_>) -> Result<Word, LineError> {
    let first = tokens.some(STATEMENT)?;
    let word = match first.text {
        "nop" => nop(tokens)?,
        "marker" => Word::MARKER,
        "enable" => Word::enable(mask(tokens)?),
        "unknown" => unknown(tokens)?,
        _ if first.is_name() && tokens.accept(".") => return register::write(first, tokens),
        _ => return Err(first.expected(STATEMENT)),
    };
    match tokens.next() {
        None => Ok(word),
        Some(more) => Err(more.expected("the end of the line")),
    }
}

/// `nop`, `nop (carries 0x5)`.
fn nop(tokens: &mut Tokens<'_>) -> Result<Word, LineError> {
    if !tokens.accept("(") {
        return Ok(Word::NOP);
    }
    tokens.demand("carries")?;
    let bits = tokens.number(u64::MAX)?;
    tokens.demand(")")?;
    Ok(Word::from_bits(bits))
}

/// `unknown: target 0x0201 offset 0x4000 value 0x00000002`.
fn unknown(tokens: &mut Tokens<'_>) -> Result<Word, LineError> {
    tokens.demand(":")?;
    tokens.demand("target")?;
    let target = tokens.number(u16::MAX.into())? as u16;
    tokens.demand("offset")?;
    let offset = tokens.number(u16::MAX.into())? as u16;
    tokens.demand("value")?;
    Ok(Word::new(target, offset, tokens.value()?))
}

/// `CNA + CORE + unknown blocks 0x80`, `nothing`, `0x0d`.
fn mask(tokens: &mut Tokens<'_>) -> Result<EnableMask, LineError> {
    const BLOCK: &str = "a block, `unknown blocks`, a number or `nothing`";
    if tokens.accept("nothing") {
        return Ok(EnableMask::empty());
    }
    let mut bits = 0;
    loop {
        let token = tokens.some(BLOCK)?;
        bits |= if token.text == "unknown" {
            tokens.demand("blocks")?;
            tokens.value()?
        } else if token.is_number() {
            token.number(u32::MAX.into())? as u32
        } else if token.is_name() {
            match register::block(token)?.enable() {
                // PC, which no program enables.
                mask if mask.is_empty() => return Err(token.expected(BLOCK)),
                mask => mask.bits(),
            }
        } else {
            return Err(token.expected(BLOCK));
        };
        if !tokens.accept("+") {
            return Ok(EnableMask::from_bits_retain(bits));
        }
    }
}
