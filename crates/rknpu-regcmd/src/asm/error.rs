// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be wrong with assembler text.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use crate::field::FieldRangeError;
use crate::word::Block;

/// A place in assembler text at which it makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct AsmError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the character in the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: AsmProblem,
}

/// What is wrong with assembler text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AsmProblem {
    /// Something else should be here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What would be right.
        expected: &'static str,
        /// What is there, quoted.
        found: String,
    },
    /// A block that does not exist.
    #[error("there is no block `{name}`; the blocks are {}", Blocks)]
    UnknownBlock {
        /// The name that was given.
        name: String,
    },
    /// A register that the block does not have.
    #[error("{block} has no register `{name}`{}; an offset such as {block}.{:#06x} needs no name", Nearest(.nearest), .block.page() << 12)]
    UnknownRegister {
        /// The block.
        block: Block,
        /// The name that was given.
        name: String,
        /// Registers of the block with a similar name.
        nearest: Vec<&'static str>,
    },
    /// A field that the register does not have.
    #[error("{register} has no field `{name}`; its fields are {}", List(.fields))]
    UnknownField {
        /// The register.
        register: &'static str,
        /// The name that was given.
        name: String,
        /// The names of its fields.
        fields: Vec<&'static str>,
    },
    /// A field that is given a second time.
    #[error("the field {field} is given twice")]
    FieldTwice {
        /// The field.
        field: &'static str,
    },
    /// A value that does not fit its field.
    #[error(transparent)]
    FieldRange(#[from] FieldRangeError),
    /// A number that is too large for its place.
    #[error("{found} does not fit here: the largest number is {max:#x}")]
    TooLarge {
        /// The number as given.
        found: String,
        /// The largest number that fits.
        max: u64,
    },
    /// A register offset on another block's page.
    #[error("the offset {offset:#06x} is not in the page of {block}, {:#06x} to {:#06x}", .block.page() << 12, .block.page() << 12 | 0xfff)]
    OffsetOutside {
        /// The block.
        block: Block,
        /// The offset that was given.
        offset: u16,
    },
    /// Undeclared bits that belong to a field.
    #[error("the bits {bits:#x} of {register} are declared: use the fields' names")]
    DeclaredBits {
        /// The register.
        register: &'static str,
        /// The bits that belong to fields.
        bits: u32,
    },
    /// The value of the register and that of the field contradict each other.
    #[error(
        "the value {value:#010x} has {field}={in_value}, not {given}: correct one, or leave out the value"
    )]
    FieldDiffers {
        /// The field.
        field: &'static str,
        /// The value of the whole register.
        value: u32,
        /// What the field is in it.
        in_value: i64,
        /// What was given for it.
        given: i64,
    },
    /// The word and the statement of a line contradict each other.
    #[error(
        "the word {word:016x} is not what the line says, {statement:016x}: correct one, or leave out the word"
    )]
    WordDiffers {
        /// The word that stands before the statement.
        word: u64,
        /// The word of the statement.
        statement: u64,
    },
    /// Several words before a statement.
    #[error("a statement can follow one word, not several")]
    WordsBeforeStatement,
}

struct Blocks;

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        List(&Block::ALL.map(Block::name)).fmt(f)
    }
}

struct List<'a>(&'a [&'static str]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for name in self.0 {
            write!(f, "{gap}{name}")?;
            gap = ", ";
        }
        Ok(())
    }
}

struct Nearest<'a>(&'a [&'static str]);

impl fmt::Display for Nearest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, " (similar: {})", List(self.0))
    }
}
