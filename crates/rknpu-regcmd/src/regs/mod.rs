// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every register that a program or the kernel driver writes, each declared once,
//! with one module for each block.

pub mod cna;
pub mod core;
pub mod dpu;
pub mod dpu_rdma;
pub mod pc;
pub mod ppu;
pub mod ppu_rdma;

use crate::field::RegisterInfo;
use crate::word::Block;

/// The registers of a block, by offset.
#[must_use]
pub fn of_block(block: Block) -> &'static [&'static RegisterInfo] {
    match block {
        Block::Pc => pc::REGISTERS,
        Block::Cna => cna::REGISTERS,
        Block::Core => core::REGISTERS,
        Block::Dpu => dpu::REGISTERS,
        Block::DpuRdma => dpu_rdma::REGISTERS,
        Block::Ppu => ppu::REGISTERS,
        Block::PpuRdma => ppu_rdma::REGISTERS,
    }
}

/// All registers, by offset.
pub fn all() -> impl Iterator<Item = &'static RegisterInfo> {
    Block::ALL
        .into_iter()
        .flat_map(|block| of_block(block).iter().copied())
}

/// The register at `offset`, if it is declared.
#[must_use]
pub fn lookup(offset: u16) -> Option<&'static RegisterInfo> {
    let registers = of_block(Block::of_offset(offset)?);
    let index = registers
        .binary_search_by_key(&offset, |register| register.offset)
        .ok()?;
    registers.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_rise_and_stay_in_the_page_of_their_block() {
        for block in Block::ALL {
            let registers = of_block(block);
            assert!(registers.is_sorted_by(|a, b| a.offset < b.offset));
            for register in registers {
                assert_eq!(Block::of_offset(register.offset), Some(block));
                assert_eq!(register.block, block);
                assert_eq!(register.offset % 4, 0);
            }
        }
    }

    #[test]
    fn fields_rise_and_do_not_overlap() {
        for register in all() {
            assert!(!register.fields.is_empty(), "{register}");
            for field in register.fields {
                assert!(
                    field.lsb <= field.msb && field.msb < 32,
                    "{register} {field:?}"
                );
            }
            for two in register.fields.windows(2) {
                assert!(two[0].msb < two[1].lsb, "{register} {two:?}");
            }
        }
    }

    #[test]
    fn every_register_is_found_by_its_offset() {
        for register in all() {
            let found = lookup(register.offset).unwrap();
            assert_eq!(found.name, register.name);
        }
        assert!(lookup(0x2000).is_none());
        assert!(lookup(0x1002).is_none());
    }
}
