// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linking: fills in addresses and proves that the program stays within its buffers.
//!
//! The proof needs more than ranges: the hardware must use exactly these values. So
//! the program must write every register that determines where it reads or writes,
//! into the register group that runs, and must not set a bit that no source
//! describes.

use alloc::vec::Vec;

use thiserror::Error;

use crate::decode::{Item, decode};
use crate::extent::{self, Extent, ExtentError};
use crate::field::RegisterInfo;
use crate::program::{BufferId, BufferRef, POINTER_VALUE, Program};
use crate::regs::pc;
use crate::task::tasks;
use crate::word::{Block, EnableMask, Iova, Word};

/// The address range of a buffer of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The buffer.
    pub id: BufferId,
    /// Address of the first byte.
    pub iova: Iova,
    /// Length in bytes.
    pub len: u32,
}

/// Why a program cannot be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The program names a buffer that has no binding.
    #[error("buffer {} is used by word {word} but not bound", id.0)]
    Unbound {
        /// The buffer.
        id: BufferId,
        /// Index of the word.
        word: usize,
    },
    /// Two bindings of one buffer.
    #[error("buffer {} is bound twice", .0.0)]
    BoundTwice(BufferId),
    /// An address is outside its buffer.
    #[error(
        "word {word} points {} bytes into buffer {}, which has {len}",
        to.offset, to.buffer.0
    )]
    OffsetBeyondBuffer {
        /// Index of the word.
        word: usize,
        /// The address.
        to: BufferRef,
        /// Length of the buffer.
        len: u32,
    },
    /// A binding reaches beyond 32-bit addresses.
    #[error(
        "buffer {} at {} with {} bytes leaves the 4 GiB address space",
        .0.id.0, .0.iova, .0.len
    )]
    BindingOutOfRange(Binding),
    /// A word has no known meaning, writes an undeclared register, or sets an
    /// undeclared bit.
    #[error("word {word} ({bits:#018x}) is not known to be harmless")]
    UnknownWord {
        /// Index of the word.
        word: usize,
        /// Bits of the word.
        bits: u64,
    },
    /// The program writes a register of the kernel driver, or a link to another
    /// program.
    #[error("word {word} writes {register}, which belongs to the kernel driver")]
    ForeignRegister {
        /// Index of the word.
        word: usize,
        /// The register.
        register: &'static str,
    },
    /// A block's S_POINTER is missing, late, or not 0xE, or the program writes that
    /// of CNA or CORE. The block may then run with other values.
    #[error("{0}: S_POINTER must be written first, and as 0xe")]
    RegisterGroup(Block),
    /// The program does not write a register that determines addresses.
    #[error(
        "{} {} decides what is accessed, but the program does not write it",
        .0.block, .0.name
    )]
    Unwritten(&'static RegisterInfo),
    /// The words are not exactly one task that ends with the last word.
    #[error("a program is one task that ends with its enable word; this has {0}")]
    NotOneTask(usize),
    /// The memory that the program touches is not known.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// The range of an engine does not lie within one buffer.
    #[error("{0} is not within any bound buffer; check sizes and strides")]
    OutsideBuffers(Extent),
}

impl Program {
    /// Fills in addresses and proves that the program touches only these buffers.
    ///
    /// # Errors
    /// [`LinkError`]: why the program cannot be linked.
    pub fn link(&self, bindings: &[Binding]) -> Result<LinkedProgram, LinkError> {
        check_bindings(bindings)?;
        let mut words = self.words().to_vec();
        for &(word, to) in self.relocations() {
            let iova = resolve(to, word, bindings)?;
            if let Some(slot) = words.get_mut(word) {
                *slot = Word::new(slot.target(), slot.offset(), iova.0);
            }
        }
        prove(words, bindings)
    }
}

/// A program that can run: every byte that it reads or writes lies in one of
/// the buffers that it was linked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedProgram {
    words: Vec<Word>,
    extents: Vec<Extent>,
    last_written: Option<Iova>,
}

impl LinkedProgram {
    /// The words, an even number.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// Bytes that it takes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<Word>() + self.extents.capacity() * size_of::<Extent>()
    }

    /// The memory that it touches besides its own words.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Address of the last 16-byte atom of the output, which a program that ran to
    /// its end has written. `None` if nothing is written to memory, or the atom is in
    /// doubt.
    #[must_use]
    pub fn last_written_atom(&self) -> Option<Iova> {
        self.last_written
    }
}

fn check_bindings(bindings: &[Binding]) -> Result<(), LinkError> {
    for (index, &binding) in bindings.iter().enumerate() {
        if u64::from(binding.iova.0) + u64::from(binding.len) > Iova::END {
            return Err(LinkError::BindingOutOfRange(binding));
        }
        let mut before = bindings.iter().take(index);
        if before.any(|other| other.id == binding.id) {
            return Err(LinkError::BoundTwice(binding.id));
        }
    }
    Ok(())
}

fn resolve(to: BufferRef, word: usize, bindings: &[Binding]) -> Result<Iova, LinkError> {
    let id = to.buffer;
    let bound = bindings.iter().find(|binding| binding.id == id);
    let &Binding { iova, len, .. } = bound.ok_or(LinkError::Unbound { id, word })?;
    let address = iova.0.checked_add(to.offset).filter(|_| to.offset < len);
    address
        .map(Iova)
        .ok_or(LinkError::OffsetBeyondBuffer { word, to, len })
}

fn prove(words: Vec<Word>, bindings: &[Binding]) -> Result<LinkedProgram, LinkError> {
    let enable_words = words.iter().filter(|word| word.is_enable()).count();
    let ends = words.last().is_some_and(|word| word.is_enable());
    let task = tasks(&words)
        .next()
        .filter(|_| enable_words == 1 && ends)
        .ok_or(LinkError::NotOneTask(enable_words))?;
    check_words(&words)?;
    check_groups(&words, task.enable)?;
    let (extents, unwritten) = extent::extents_and_unwritten(&task.regs, task.enable);
    let extents = extents?;
    if let Some(register) = unwritten {
        return Err(LinkError::Unwritten(register));
    }
    for &extent in &extents {
        if !bindings.iter().any(|b| extent.within(b.iova, b.len)) {
            return Err(LinkError::OutsideBuffers(extent));
        }
    }
    Ok(LinkedProgram {
        last_written: extent::last_written_atom(&task.regs, task.enable),
        extents,
        words,
    })
}

/// Checks that the effect of every word is known.
fn check_words(words: &[Word]) -> Result<(), LinkError> {
    for (word, item) in decode(words).enumerate() {
        let bits = item.word().bits();
        let unknown = Err(LinkError::UnknownWord { word, bits });
        match item {
            Item::Write { register, value } => {
                let foreign = match register.block {
                    // The trailer's length of the next program is 0: there is none.
                    Block::Pc => register.offset != pc::RegisterAmounts::OFFSET || value != 0,
                    _ => !register.is_operand() && !register.is_pointer(),
                };
                if foreign {
                    let register = register.name;
                    return Err(LinkError::ForeignRegister { word, register });
                }
                if value & !register.declared_bits() != 0 {
                    return unknown;
                }
            }
            Item::Enable(_) | Item::Marker | Item::Nop(_) => {}
            Item::Undeclared(..) | Item::Unknown(_) => return unknown,
        }
    }
    Ok(())
}

/// Checks that all values go into the register group that the enable word starts.
///
/// The kernel writes the S_POINTER of CNA and CORE, with the core's number in it, so
/// a program must not write it (Linux `drivers/accel/rocket`).
fn check_groups(words: &[Word], enable: EnableMask) -> Result<(), LinkError> {
    let by_kernel = EnableMask::CNA | EnableMask::CORE;
    // Blocks whose group is known, or does not matter.
    let mut selected = by_kernel | !enable;
    for item in decode(words) {
        let Item::Write { register, value } = item else {
            continue;
        };
        let block = register.block.enable();
        let good = if register.is_pointer() {
            selected |= block;
            value == POINTER_VALUE && !by_kernel.contains(block)
        } else {
            selected.contains(block)
        };
        if !good {
            return Err(LinkError::RegisterGroup(register.block));
        }
    }
    let mut blocks = Block::ALL.into_iter();
    let left = blocks.find(|block| !selected.contains(block.enable()));
    left.map_or(Ok(()), |block| Err(LinkError::RegisterGroup(block)))
}
