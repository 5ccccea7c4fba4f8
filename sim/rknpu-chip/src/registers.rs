// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of one core: two groups of each block, and S_POINTER, which selects the
//! group to write and the group to execute.
//!
//! All known programs write 0xE to S_POINTER: both pointers toggle, so each task writes
//! and executes the group that the previous task did not (E-groups-alternate). After a
//! task, writes go to the other group. It is executed from the next write of S_POINTER
//! on, or after [`RegisterGroups::follow`]. So a segment of a chain that does not write
//! S_POINTER runs the first segment's registers, except for the address of the DPU's
//! output (E-chain-repeats). That no other register is new is inferred.

use rknpu_regcmd::regs::{self, cna, dpu};
use rknpu_regcmd::{Block, Register, RegisterFile};

use super::contested::{Contested, OtherSide};

/// Number of blocks. All but the PC have two groups.
const BLOCKS: usize = Block::ALL.len();
/// Mask of a register's offset in its page.
const PAGE_MASK: u16 = 0xfff;

/// BS_CFG and BN_CFG with the stage and all its parts bypassed, and EW_CFG
/// likewise, as every known program writes them.
const STAGE_BYPASSED: u32 = 0x53;
const EW_BYPASSED: u32 = 0x383;
/// OUT_CVT_SCALE 1 and FP32TOFP16_EN.
const SCALE_IDENTITY: u32 = 0x1_0001;
/// Registers that are not 0 after a reset (contested: fresh-stages).
const AFTER_RESET: [(u16, u32); 4] = [
    (dpu::BsCfg::OFFSET, STAGE_BYPASSED),
    (dpu::BnCfg::OFFSET, STAGE_BYPASSED),
    (dpu::EwCfg::OFFSET, EW_BYPASSED),
    (dpu::OutCvtScale::OFFSET, SCALE_IDENTITY),
];
/// Bit from which S_POINTER of CNA and CORE holds the core's number.
pub(crate) const CORE_NUMBER_SHIFT: u32 = 28;

/// The groups of a block's registers that are written and executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pointers {
    written: usize,
    pub(crate) executed: usize,
    toggles: bool,
    /// Whether S_POINTER was written since the last task.
    pub(crate) set: bool,
    /// The core's number in S_POINTER.
    pub(crate) core_number: u32,
}

impl Pointers {
    /// Whether the block executes another group than is written.
    pub(crate) fn repeats(&self) -> bool {
        self.executed != self.written
    }
}

/// The register file of a core.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegisterGroups {
    groups: [RegisterFile; 2],
    pointers: [Pointers; BLOCKS],
}

fn index(block: Block) -> usize {
    // Discriminants count from 0 in the order of `Block::ALL`.
    block as usize
}

/// Whether this is a block's S_POINTER. Its offset is the same in every page
/// but the PC's.
fn is_pointer(block: Block, offset: u16) -> bool {
    block != Block::Pc && offset & PAGE_MASK == cna::SPointer::OFFSET & PAGE_MASK
}

impl RegisterGroups {
    /// The registers after a reset.
    pub(crate) fn new(contested: Contested) -> Self {
        let mut registers = Self::default();
        if !contested.has(OtherSide::FreshStagesActive) {
            for group in &mut registers.groups {
                for (offset, value) in AFTER_RESET {
                    group.set(offset, value);
                }
            }
        }
        registers.begin();
        registers
    }

    pub(crate) fn pointers(&self, block: Block) -> &Pointers {
        &self.pointers[index(block)]
    }

    /// Writes a register, in the group that its block's S_POINTER selects.
    pub(crate) fn write(&mut self, offset: u16, value: u32) {
        let Some(block) = Block::of_offset(offset) else {
            return;
        };
        let pointers = &mut self.pointers[index(block)];
        if is_pointer(block, offset) {
            // All blocks have the same field positions.
            let pointer = cna::SPointer::from_bits(value);
            let toggles = pointer.pointer_pp_en() == 1;
            let group = if pointer.pointer_pp_clear() == 1 {
                0
            } else if toggles {
                // With toggling, bit 0 does not select the group.
                pointers.written
            } else {
                pointer.pointer() as usize
            };
            *pointers = Pointers {
                written: group,
                executed: group,
                toggles,
                set: true,
                core_number: value >> CORE_NUMBER_SHIFT,
            };
            for group in &mut self.groups {
                group.set(offset, value);
            }
        } else {
            self.groups[pointers.written].set(offset, value);
        }
    }

    /// Reads a register of the group that is written.
    pub(crate) fn read(&self, offset: u16) -> u32 {
        let group = |block| &self.groups[self.pointers(block).written];
        Block::of_offset(offset).map_or(0, |block| group(block).value(offset))
    }

    /// Makes a block execute the group that is written.
    pub(crate) fn follow(&mut self, block: Block) {
        let pointers = &mut self.pointers[index(block)];
        pointers.executed = pointers.written;
    }

    /// The registers that the blocks execute. Those that the kick wrote are
    /// marked as written.
    pub(crate) fn executing(&self) -> RegisterFile {
        let mut file = self.executed_groups();
        let address = dpu::DstBaseAddr::OFFSET;
        let pointers = self.pointers(Block::Dpu);
        let written = &self.groups[pointers.written];
        if pointers.repeats() && written.was_written(address) {
            file.set(address, written.value(address));
        }
        file
    }

    fn executed_groups(&self) -> RegisterFile {
        if self.pointers.iter().all(|pointers| pointers.executed == 0) {
            return self.groups[0].clone();
        }
        let mut file = RegisterFile::new();
        let registers = || {
            Block::ALL.into_iter().flat_map(|block| {
                let group = &self.groups[self.pointers(block).executed];
                let registers = regs::of_block(block).iter();
                registers.map(move |register| (group, register.offset))
            })
        };
        for (group, offset) in registers() {
            file.set(offset, group.value(offset));
        }
        file.forget_writes();
        for (group, offset) in registers().filter(|(group, offset)| group.was_written(*offset)) {
            file.set(offset, group.value(offset));
        }
        file
    }

    /// Begins a kick: it has written no register yet.
    pub(crate) fn begin(&mut self) {
        for group in &mut self.groups {
            group.forget_writes();
        }
    }

    /// Ends a task: writes to toggling blocks that ran go to the other group.
    pub(crate) fn finish(&mut self, ran: impl Fn(Block) -> bool) {
        for block in Block::ALL {
            let pointers = &mut self.pointers[index(block)];
            if ran(block) {
                if pointers.toggles {
                    pointers.written = pointers.executed ^ 1;
                }
                pointers.set = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rknpu_regcmd::regs::dpu;

    const PING_PONG: u32 = 0xe;
    /// Both pointers to group 0, where they stay.
    const CLEAR: u32 = 0x30;

    #[test]
    fn blocks_are_numbered_in_order() {
        for (number, block) in Block::ALL.into_iter().enumerate() {
            assert_eq!(index(block), number);
        }
    }

    #[test]
    fn groups_alternate_unless_the_pointers_are_told_not_to() {
        let mut registers = RegisterGroups::default();
        for (pointer, group) in [
            (PING_PONG, 0),
            (PING_PONG, 1),
            (PING_PONG, 0),
            (CLEAR, 0),
            (CLEAR, 0),
            (1, 1),
        ] {
            registers.write(dpu::SPointer::OFFSET, pointer);
            assert_eq!(
                registers.pointers(Block::Dpu).executed,
                group,
                "{pointer:#x}"
            );
            registers.finish(|block| block == Block::Dpu);
        }
    }
}
