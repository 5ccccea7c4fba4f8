// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of one core: the guest's, through the core's IOMMU.

use rknpu_chip::{Bus, Direction, Fault, Master};

use crate::board::PAGE_BYTES;
use crate::mmu::Mmu;
use crate::ram::Ram;

/// The bus of one task.
pub(crate) struct TaskBus<'a, R> {
    ram: &'a Ram,
    mmu: &'a Mmu,
    /// Whether the core was reset since the task began. A reset ends all of its
    /// accesses: the memory may have another owner by now.
    is_over: R,
    fault: Option<Fault>,
}

impl<'a, R: Fn() -> bool> TaskBus<'a, R> {
    pub(crate) fn new(ram: &'a Ram, mmu: &'a Mmu, is_over: R) -> Self {
        Self {
            ram,
            mmu,
            is_over,
            fault: None,
        }
    }

    /// The first access without translation.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Splits the `len` bytes from `iova` on at page boundaries. Calls `access`
    /// with the physical address, offset and length of each piece.
    fn for_each_piece(
        &mut self,
        (master, direction): (Master, Direction),
        iova: u32,
        len: usize,
        mut access: impl FnMut(&Ram, u64, usize, usize) -> Option<()>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < len {
            let address = u64::from(iova) + done as u64;
            let left_in_page = PAGE_BYTES - address % PAGE_BYTES;
            let piece = (len - done).min(left_in_page as usize);
            let page = u32::try_from(address).ok().filter(|_| !(self.is_over)());
            let outcome = page
                .and_then(|iova| self.mmu.translate(iova, direction))
                .and_then(|physical| access(self.ram, physical, done, piece));
            if outcome.is_none() {
                let fault = Fault {
                    address,
                    direction,
                    master,
                };
                if !(self.is_over)() {
                    self.fault = self.fault.or(Some(fault));
                }
                return Err(fault);
            }
            done += piece;
        }
        Ok(())
    }
}

impl<R: Fn() -> bool> Bus for TaskBus<'_, R> {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let how = (master, Direction::Read);
        self.for_each_piece(how, iova, out.len(), |ram, physical, at, len| {
            let piece = out.get_mut(at..at + len)?;
            ram.read(physical, piece)
        })
    }

    fn check_read(&mut self, master: Master, iova: u32, len: usize) -> Result<(), Fault> {
        let how = (master, Direction::Read);
        self.for_each_piece(how, iova, len, |_, _, _, _| Some(()))
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        let how = (master, Direction::Write);
        self.for_each_piece(how, iova, data.len(), |ram, physical, at, len| {
            ram.write(physical, data.get(at..at + len)?)
        })
    }

    fn attachment(&self) -> u64 {
        self.mmu.attachment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board;
    use crate::mmu::tests::{map, memory};
    use rknpu_regcmd::DmaEngine;

    #[test]
    fn pages_need_not_be_neighbours() {
        let (ram, mmu) = memory();
        let pages = [board::RAM + 0x9000, board::RAM + 0x7000];
        map(&ram, &mmu, 0x1000, pages[0], 7);
        map(&ram, &mmu, 0x2000, pages[1], 7);
        let mut bus = TaskBus::new(&ram, &mmu, || false);
        bus.write(DmaEngine::DpuWrite.into(), 0x1ffe, &[1, 2, 3, 4])
            .unwrap();
        let mut out = [0; 4];
        bus.read(DmaEngine::Feature.into(), 0x1ffe, &mut out)
            .unwrap();
        assert_eq!(out, [1, 2, 3, 4]);
        ram.read(pages[0] + 0xffe, &mut out[..2]).unwrap();
        ram.read(pages[1], &mut out[2..]).unwrap();
        assert_eq!(out, [1, 2, 3, 4]);
        assert_eq!(bus.fault(), None);
        let beyond = bus
            .read(DmaEngine::Feature.into(), 0x2ffe, &mut out)
            .unwrap_err();
        assert_eq!(beyond.address, 0x3000);
        bus.check_read(DmaEngine::Feature.into(), 0x5000, 1)
            .unwrap_err();
        assert_eq!(bus.fault(), Some(beyond), "the first");
    }

    #[test]
    fn a_reset_ends_accesses_but_is_no_fault() {
        let (ram, mmu) = memory();
        map(&ram, &mmu, 0x1000, board::RAM + 0x9000, 7);
        let mut bus = TaskBus::new(&ram, &mmu, || true);
        bus.write(DmaEngine::DpuWrite.into(), 0x1000, &[1])
            .unwrap_err();
        assert_eq!(bus.fault(), None);
        assert_eq!(ram.load(board::RAM + 0x9000), Some(0));
    }

    #[test]
    fn nothing_lies_behind_the_last_address() {
        let (ram, mmu) = memory();
        map(&ram, &mmu, 0xffff_f000, board::RAM + 0x9000, 7);
        let mut bus = TaskBus::new(&ram, &mmu, || false);
        let fault = bus
            .check_read(DmaEngine::Feature.into(), 0xffff_ffff, 2)
            .unwrap_err();
        assert_eq!(fault.address, 0x1_0000_0000);
    }
}
