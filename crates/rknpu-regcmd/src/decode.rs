// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes words. Every word has a meaning, if only "unknown", and every meaning
//! converts back to its word.

use crate::field::RegisterInfo;
use crate::regs;
use crate::word::{Block, EnableMask, Word};

/// The meaning of a word.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// Writes a declared register.
    Write {
        /// The register.
        register: &'static RegisterInfo,
        /// The value.
        value: u32,
    },
    /// Writes an offset of the block at which no register is declared.
    Undeclared(Block, Word),
    /// Starts blocks. Bits that name no block are kept.
    Enable(EnableMask),
    /// The marker before the enable word.
    Marker,
    /// Does nothing; the whole word is kept.
    Nop(Word),
    /// A word without a known meaning, for example if its target and offset name
    /// different blocks.
    Unknown(Word),
}

impl Item {
    /// The meaning of `word`.
    #[must_use]
    pub fn of(word: Word) -> Self {
        let (offset, value) = (word.offset(), word.value());
        if word.is_nop() {
            return Self::Nop(word);
        }
        if word == Word::MARKER {
            return Self::Marker;
        }
        let enable = EnableMask::from_bits_retain(value);
        if word == Word::enable(enable) {
            return Self::Enable(enable);
        }
        match (Block::from_target(word.target()), Block::of_offset(offset)) {
            (Some(block), Some(page)) if block == page => match regs::lookup(offset) {
                Some(register) => Self::Write { register, value },
                None => Self::Undeclared(block, word),
            },
            _ => Self::Unknown(word),
        }
    }

    /// The word with this meaning.
    #[must_use]
    pub fn word(&self) -> Word {
        match *self {
            Self::Write { register, value } => register.write(value),
            Self::Enable(mask) => Word::enable(mask),
            Self::Marker => Word::MARKER,
            Self::Undeclared(_, word) | Self::Nop(word) | Self::Unknown(word) => word,
        }
    }
}

/// The meaning of each word.
pub fn decode(words: &[Word]) -> impl DoubleEndedIterator<Item = Item> + ExactSizeIterator + '_ {
    words.iter().map(|&word| Item::of(word))
}
