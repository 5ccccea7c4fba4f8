// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register programs with symbolic addresses.

use alloc::vec::Vec;

use crate::field::{AddressRegister, FieldRangeError, Register};
use crate::regfile::RegisterFile;
use crate::regs::{self, pc};
use crate::word::{Block, EnableMask, Word};

/// The value that all programs write to S_POINTER: both pointers toggle, and writes
/// go to the group that the enable word starts.
pub(crate) const POINTER_VALUE: u32 = 0xe;

/// A buffer of a program, named by a number that the program's author chooses.
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
    /// Maximum words of a program. REGISTER_AMOUNTS holds the number of pairs of
    /// words, less one, in 16 bits (Linux `rocket_job.c`).
    pub const WORDS_MAX: usize = 2 << 16;

    /// The program of `words`. `relocations` names the words whose values are
    /// addresses, by rising index. The program ends with its trailer: no link to a
    /// next program, the marker, and the word that starts the blocks of `enable`.
    ///
    /// PC fetches words in pairs, so a program of odd length would run into the word
    /// that follows it in memory. Such a program gets one more NOP.
    #[must_use]
    pub fn of_words(
        mut words: Vec<Word>,
        relocations: Vec<(usize, BufferRef)>,
        enable: EnableMask,
    ) -> Self {
        if !words.len().is_multiple_of(2) {
            words.push(Word::NOP);
        }
        let amounts = pc::RegisterAmounts::INFO.write(0);
        words.extend([Word::NOP, amounts, Word::MARKER, Word::enable(enable)]);
        Self { words, relocations }
    }

    /// The words, with 0 in place of addresses.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// The index of each word whose address linking fills in, and the place that it
    /// points to, by rising index.
    #[must_use]
    pub fn relocations(&self) -> &[(usize, BufferRef)] {
        &self.relocations
    }
}

/// A set of register values and addresses. Registers that are not set are 0.
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

    /// Sets a field of a register with its setter, such as `cna::ConvCon2::with_feature_grains`.
    pub(crate) fn set_field<R: Register, V>(
        &mut self,
        with: fn(R, V) -> Result<R, FieldRangeError>,
        value: V,
    ) -> Result<(), FieldRangeError> {
        self.set(with(self.values.get(), value)?);
        Ok(())
    }

    /// Sets an address register.
    pub fn set_address<R: AddressRegister>(&mut self, to: BufferRef) -> &mut Self {
        self.addresses
            .retain(|&(offset, _)| offset != R::INFO.offset);
        self.addresses.push((R::INFO.offset, to));
        self
    }

    /// The program that runs the blocks of `enable` with these registers.
    ///
    /// It writes every register of these blocks that programs write, in the order of
    /// their offsets: a register that it leaves out would keep the value of an
    /// earlier program, of any process. S_POINTER comes first, except that of CNA and
    /// CORE, which the kernel writes.
    #[must_use]
    pub fn program(&self, enable: EnableMask) -> Program {
        let blocks = Block::ALL.into_iter();
        let runs = blocks.filter(|block| enable.intersects(block.enable()));
        let registers = || runs.clone().flat_map(regs::of_block);
        let is_in_program = |block| !matches!(block, Block::Cna | Block::Core);
        let pointers = registers().filter(|info| info.is_pointer() && is_in_program(info.block));
        let mut words: Vec<_> = pointers.map(|info| info.write(POINTER_VALUE)).collect();
        let mut relocations = Vec::new();
        for info in registers().filter(|info| info.is_operand()) {
            let mut addresses = self.addresses.iter();
            if let Some(&(_, to)) = addresses.find(|(offset, _)| *offset == info.offset) {
                relocations.push((words.len(), to));
            }
            words.push(info.write(self.values.value(info.offset)));
        }
        Program::of_words(words, relocations, enable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::{core, dpu};

    #[test]
    fn programs_have_an_even_number_of_words_and_the_trailer() {
        for count in [1, 2] {
            let words = std::vec![dpu::BsCfg::INFO.write(0); count];
            let program = Program::of_words(words, Vec::new(), EnableMask::DPU);
            let bits: Vec<_> = program.words().iter().map(|word| word.bits()).collect();
            assert_eq!(bits.len(), 6);
            assert_eq!(
                bits[2..],
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
        let program = set.program(EnableMask::CORE | EnableMask::DPU);
        let offset = |word: usize| program.words()[word].offset();
        // The five registers of CORE that programs write come before the DPU's.
        assert_eq!(offset(0), dpu::SPointer::OFFSET);
        assert_eq!(offset(1), core::MiscCfg::OFFSET);
        assert_eq!(offset(6), dpu::FeatureModeCfg::OFFSET);
        let [(word, to)] = program.relocations() else {
            panic!("one address expected");
        };
        assert_eq!(*to, BufferId(2).at(64));
        assert_eq!(offset(*word), dpu::DstBaseAddr::OFFSET);
        let bs = |word: &&Word| word.offset() == dpu::BsCfg::OFFSET;
        assert_eq!(program.words().iter().find(bs).unwrap().value(), 0x53);
    }
}
