// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs whose addresses are not known yet.

use alloc::vec::Vec;

use crate::field::{AddressRegister, Register, RegisterInfo};
use crate::regfile::RegisterFile;
use crate::regs::{self, pc};
use crate::word::{Block, EnableMask, Word};

/// A buffer of a program, by a number that its author chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

impl BufferId {
    /// The place `offset` bytes into the buffer.
    #[must_use]
    pub const fn at(self, offset: u32) -> BufferRef {
        BufferRef {
            buffer: self,
            offset,
        }
    }
}

/// A place in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferRef {
    /// The buffer.
    pub buffer: BufferId,
    /// Bytes from its beginning.
    pub offset: u32,
}

/// The register program of one task, with symbolic addresses.
///
/// [`link`](Program::link) turns it into words that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    words: Vec<Word>,
    relocations: Vec<(usize, BufferRef)>,
}

impl Program {
    /// A program to be filled.
    #[must_use]
    pub fn builder() -> ProgramBuilder {
        ProgramBuilder {
            words: Vec::new(),
            relocations: Vec::new(),
        }
    }

    /// The words, with 0 where addresses belong.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// The words whose values are addresses that linking fills in, by rising index,
    /// and what they point to.
    #[must_use]
    pub fn relocations(&self) -> &[(usize, BufferRef)] {
        &self.relocations
    }
}

/// Collects the words of one task in the order in which they will be written.
#[derive(Clone, Debug)]
pub struct ProgramBuilder {
    words: Vec<Word>,
    relocations: Vec<(usize, BufferRef)>,
}

impl ProgramBuilder {
    /// Writes a register.
    pub fn push<R: Register>(&mut self, register: R) -> &mut Self {
        self.push_value(R::INFO, register.bits());
        self
    }

    /// Writes the address of `to` into an address register.
    pub fn push_address<R: AddressRegister>(&mut self, to: BufferRef) -> &mut Self {
        self.push_relocated(R::INFO, to);
        self
    }

    /// Writes a register that is not known as a type here: replayed captures,
    /// tests. Linking checks it like all others.
    pub fn push_raw(&mut self, register: &RegisterInfo, value: u32) -> &mut Self {
        self.push_value(register, value);
        self
    }

    /// Writes every register that programs write (S_POINTER apart) of `block`,
    /// in the order of their offsets: a program that leaves one out runs with
    /// what an earlier one, of any process, left there. Registers that `set`
    /// does not mention are written as 0.
    pub fn push_block(&mut self, block: Block, set: &RegisterSet) -> &mut Self {
        for info in regs::of_block(block) {
            if !info.is_operand() {
                continue;
            }
            match set.address(info.offset) {
                Some(to) => self.push_relocated(info, to),
                None => self.push_value(info, set.values.value(info.offset)),
            }
        }
        self
    }

    /// Ends the program with its trailer: no link to a next program, the
    /// marker, and the word that starts the blocks of `enable`.
    ///
    /// PC fetches words in pairs, so that a program of odd length would run
    /// into whatever follows it in memory; such a one gets one more NOP.
    #[must_use]
    pub fn finish(mut self, enable: EnableMask) -> Program {
        if !self.words.len().is_multiple_of(2) {
            self.words.push(Word::NOP);
        }
        self.words.push(Word::NOP);
        self.push(pc::RegisterAmounts::new());
        self.words.push(Word::MARKER);
        self.words.push(Word::enable(enable));
        Program {
            words: self.words,
            relocations: self.relocations,
        }
    }

    fn push_value(&mut self, info: &RegisterInfo, value: u32) {
        let word = Word::new(info.block.target(), info.offset, value);
        self.words.push(word);
    }

    fn push_relocated(&mut self, info: &RegisterInfo, to: BufferRef) {
        self.relocations.push((self.words.len(), to));
        self.push_value(info, 0);
    }
}

/// Register values and addresses, in no order; what it does not mention is 0.
#[derive(Clone, Debug, Default)]
pub struct RegisterSet {
    values: RegisterFile,
    addresses: Vec<(u16, BufferRef)>,
}

impl RegisterSet {
    /// All registers 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a register.
    pub fn set<R: Register>(&mut self, register: R) -> &mut Self {
        self.values.put(register);
        self
    }

    /// Sets an address register.
    pub fn set_address<R: AddressRegister>(&mut self, to: BufferRef) -> &mut Self {
        self.addresses
            .retain(|&(offset, _)| offset != R::INFO.offset);
        self.addresses.push((R::INFO.offset, to));
        self
    }

    fn address(&self, offset: u16) -> Option<BufferRef> {
        let found = self.addresses.iter().find(|&&(other, _)| other == offset)?;
        Some(found.1)
    }
}

/// Sets registers field by field; fields that it does not mention are 0.
macro_rules! set {
    ($set:expr; $($block:ident::$register:ident { $($field:ident: $value:expr),* })*) => {
        pastey::paste! {
            $( $set.set($block::$register::new()$(.[<with_ $field>]($value)?)*); )*
        }
    };
}
pub(crate) use set;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::{core, dpu};

    #[test]
    fn programs_have_an_even_number_of_words_and_the_trailer() {
        for extra in 0..2 {
            let mut builder = Program::builder();
            builder.push(dpu::SPointer::from_bits(0xe));
            for _ in 0..extra {
                builder.push(dpu::BsCfg::new());
            }
            let program = builder.finish(EnableMask::DPU);
            let words = program.words();
            assert_eq!(words.len(), 6);
            assert_eq!(
                words[2..].iter().map(|w| w.bits()).collect::<Vec<_>>(),
                [
                    0,
                    0x0101_0000_0000_0014,
                    0x0041_0000_0000_0000,
                    0x0081_0000_0008_0008
                ]
            );
        }
    }

    #[test]
    fn a_block_is_written_whole_and_addresses_are_noted() {
        let mut set = RegisterSet::new();
        set.set(dpu::BsCfg::from_bits(0x53));
        set.set_address::<dpu::DstBaseAddr>(BufferId(1).at(64));
        set.set_address::<dpu::DstBaseAddr>(BufferId(2).at(64));
        let mut builder = Program::builder();
        builder
            .push_block(Block::Core, &set)
            .push_block(Block::Dpu, &set);
        let program = builder.finish(EnableMask::DPU);
        // The five registers of CORE that programs write come first.
        assert_eq!(program.words()[0].offset(), core::MiscCfg::OFFSET);
        assert_eq!(program.words()[5].offset(), dpu::FeatureModeCfg::OFFSET);
        let [(word, to)] = program.relocations() else {
            panic!("one address expected");
        };
        assert_eq!(*to, BufferId(2).at(64));
        assert_eq!(program.words()[*word].offset(), dpu::DstBaseAddr::OFFSET);
        let bs = |word: &&Word| word.offset() == dpu::BsCfg::OFFSET;
        assert_eq!(program.words().iter().find(bs).unwrap().value(), 0x53);
    }
}
