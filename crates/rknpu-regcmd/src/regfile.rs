// SPDX-License-Identifier: MIT OR Apache-2.0
//! The values of one core's registers, and which of them were written.

use alloc::boxed::Box;

use crate::field::Register;
use crate::word::Block;

/// Registers in the used part of a block's page, which ends below 0x200 (the last
/// register of CNA is at 0x1184).
const REGISTERS_PER_PAGE: usize = 0x200 / 4;

/// The register values of one core, with one register group for each block. Registers
/// start at 0, as after power-up.
#[derive(Clone, PartialEq, Eq)]
pub struct RegisterFile {
    pages: Box<[[u32; REGISTERS_PER_PAGE]; Block::ALL.len()]>,
    written: Box<[[bool; REGISTERS_PER_PAGE]; Block::ALL.len()]>,
}

impl RegisterFile {
    /// All registers 0, none written.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pages: Box::new([[0; REGISTERS_PER_PAGE]; Block::ALL.len()]),
            written: Box::new([[false; REGISTERS_PER_PAGE]; Block::ALL.len()]),
        }
    }

    /// The register `R`.
    #[must_use]
    pub fn get<R: Register>(&self) -> R {
        R::from_bits(self.value(R::INFO.offset))
    }

    /// The value at `offset`; 0 where there is no register.
    #[must_use]
    pub fn value(&self, offset: u16) -> u32 {
        place(offset).map_or(0, |(page, index)| self.pages[page][index])
    }

    /// Writes the register at `offset`. Returns false where no register can be: in
    /// the hole at page 2, beyond the last page or the used part of a page, or
    /// unaligned.
    pub fn set(&mut self, offset: u16, value: u32) -> bool {
        let Some((page, index)) = place(offset) else {
            return false;
        };
        self.pages[page][index] = value;
        self.written[page][index] = true;
        true
    }

    /// Writes a register.
    pub fn put<R: Register>(&mut self, register: R) {
        // Every declared register has a place; a test checks that.
        self.set(R::INFO.offset, register.bits());
    }

    /// Whether the register at `offset` was written.
    #[must_use]
    pub fn was_written(&self, offset: u16) -> bool {
        place(offset).is_some_and(|(page, index)| self.written[page][index])
    }

    /// Marks all registers as not written and keeps their values, as the next task
    /// finds them.
    pub fn forget_writes(&mut self) {
        *self.written = [[false; REGISTERS_PER_PAGE]; Block::ALL.len()];
    }

    /// Offsets and values of the registers that were written, by offset.
    pub fn written(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        Block::ALL
            .into_iter()
            .enumerate()
            .flat_map(move |(page, block)| {
                (0..REGISTERS_PER_PAGE)
                    .filter(move |&index| self.written[page][index])
                    .map(move |index| {
                        let offset = block.page() << 12 | (index as u16) << 2;
                        (offset, self.pages[page][index])
                    })
            })
    }
}

impl Default for RegisterFile {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for RegisterFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map()
            .entries(self.written().map(|(offset, value)| {
                (
                    alloc::format!("{offset:#06x}"),
                    alloc::format!("{value:#010x}"),
                )
            }))
            .finish()
    }
}

fn place(offset: u16) -> Option<(usize, usize)> {
    let block = Block::of_offset(offset)?;
    let page = Block::ALL.iter().position(|&other| other == block)?;
    let index = usize::from(offset & 0xfff) / 4;
    (offset.is_multiple_of(4) && index < REGISTERS_PER_PAGE).then_some((page, index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs;

    #[test]
    fn every_declared_register_has_a_place() {
        let mut file = RegisterFile::new();
        for (number, register) in regs::all().enumerate() {
            assert!(file.set(register.offset, number as u32), "{register}");
        }
        for (number, register) in regs::all().enumerate() {
            assert_eq!(file.value(register.offset), number as u32);
            assert!(file.was_written(register.offset));
        }
        assert_eq!(file.written().count(), regs::all().count());
    }

    #[test]
    fn nothing_is_written_where_no_register_is() {
        let mut file = RegisterFile::new();
        for offset in [0x2000, 0x1002, 0x8000, 0xf008, 0x1fff] {
            assert!(!file.set(offset, 1));
            assert_eq!(file.value(offset), 0);
        }
        assert_eq!(file, RegisterFile::new());
    }
}
