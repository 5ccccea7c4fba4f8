// SPDX-License-Identifier: MIT OR Apache-2.0
//! An assembler: the inverse of [`disassemble`](crate::disassemble), and a language
//! to write programs in by hand.
//!
//! ```text
//! # Comments begin with `#` or `;`. One statement a line.
//! CNA.CBUF_CON0 = 0xb1                    the whole register
//! CNA.CBUF_CON0 data_bank=1 weight_bank=11  by fields, the others 0
//! CNA.CBUF_CON0.weight_bank = 11          likewise
//! DPU.0x4ffc = 1                          an offset without a declaration
//! marker
//! enable CNA + CORE + DPU
//! 0201000000b11040                        a word as it is
//! ```
//!
//! The grammar is in `docs/asm.md`. If a line says something twice (the word and the
//! statement, the value and its fields), both must agree.

mod register;
mod statement;
mod token;

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::word::Word;

/// An error at one place of assembler text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct AsmError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the character in the line, from 1.
    pub column: usize,
    /// What is wrong there, and what is expected.
    pub problem: String,
}

/// Assembles `text` into words.
///
/// # Errors
/// The first place where `text` is not assembler text, or contradicts itself.
///
/// # Example
/// ```
/// use rknpu_regcmd::{assemble, disassemble};
/// let words = assemble("CNA.CBUF_CON0 data_bank=1 weight_bank=11\nmarker\n")?;
/// assert_eq!(assemble(&disassemble(&words))?, words);
/// let error = assemble("enable CNA + CPU").unwrap_err();
/// assert_eq!((error.line, error.column), (1, 14));
/// # Ok::<(), rknpu_regcmd::AsmError>(())
/// ```
pub fn assemble(text: &str) -> Result<Vec<Word>, AsmError> {
    let mut words = Vec::new();
    for (index, text) in text.lines().enumerate() {
        statement::line(text, &mut words).map_err(|(column, problem)| AsmError {
            line: index + 1,
            column,
            problem,
        })?;
    }
    Ok(words)
}
