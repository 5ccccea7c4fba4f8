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
//! If a line says something twice (the word and the statement, the value and its fields),
//! both must agree. In a statement without a value, omitted fields are 0. The grammar:
//!
//! ```text
//! text       = { [ line ] [ "#" any | ";" any ] newline }
//! line       = [ decimal ] ( word { [ "," ] word } | [ word ] statement )
//! word       = 16 hexadecimal digits | "0x" and 1 to 16 of them
//! statement  = "nop" [ "(" "carries" number ")" ]
//!            | "marker"
//!            | "enable" ( "nothing" | mask { "+" mask } )
//!            | "unknown" ":" "target" number "offset" number "value" number
//!            | register "=" number [ "(" "not" "declared" ")" ] fields
//!            | register field fields
//!            | register "." field fields
//! mask       = BLOCK | "unknown" "blocks" number | number
//! register   = BLOCK "." ( NAME | number )
//! fields     = { [ "," ] field }
//! field      = ( name | "undeclared_bits" ) "=" [ "-" ] number
//! number     = decimal digits | "0x" and hexadecimal digits
//! ```
//!
//! `undeclared_bits` are the bits outside all fields. An `unknown` word has a target and an
//! offset that fit no block.

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
