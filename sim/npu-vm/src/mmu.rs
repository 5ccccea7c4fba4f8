// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core's IOMMU: the second version in Linux's `rockchip-iommu.c`, with two
//! levels of tables and a few registers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rknpu_chip::Direction;

use crate::board;
use crate::ram::{Ram, RegisterWindow};

/// Registers of a bank.
mod register {
    pub(super) const DTE_ADDR: u64 = 0x00;
    pub(super) const STATUS: u64 = 0x04;
    pub(super) const COMMAND: u64 = 0x08;
    pub(super) const PAGE_FAULT_ADDR: u64 = 0x0c;
    pub(super) const INT_RAWSTAT: u64 = 0x14;
    pub(super) const INT_CLEAR: u64 = 0x18;
    pub(super) const INT_MASK: u64 = 0x1c;
    pub(super) const INT_STATUS: u64 = 0x20;
}

/// Bits of STATUS.
mod status {
    pub(super) const PAGING_ENABLED: u32 = 1 << 0;
    pub(super) const PAGE_FAULT_ACTIVE: u32 = 1 << 1;
    pub(super) const STALL_ACTIVE: u32 = 1 << 2;
    pub(super) const IDLE: u32 = 1 << 3;
    pub(super) const REPLAY_BUFFER_EMPTY: u32 = 1 << 4;
    pub(super) const PAGE_FAULT_IS_WRITE: u32 = 1 << 5;
}

/// Values of COMMAND.
mod command {
    pub(super) const ENABLE_PAGING: u32 = 0;
    pub(super) const DISABLE_PAGING: u32 = 1;
    pub(super) const ENABLE_STALL: u32 = 2;
    pub(super) const DISABLE_STALL: u32 = 3;
    pub(super) const PAGE_FAULT_DONE: u32 = 5;
    pub(super) const FORCE_RESET: u32 = 6;
}

/// Bit of INT_*: an access without translation.
const PAGE_FAULT: u32 = 1;

/// Bits of an entry of either table.
const VALID: u32 = 1 << 0;
const READABLE: u32 = 1 << 1;
const WRITABLE: u32 = 1 << 2;

/// Entries of a table; each is a word.
const ENTRIES: u32 = 1024;
const ENTRY_BYTES: u64 = 4;
/// Lowest bit of an IOVA that selects a page table, and a page.
const DIRECTORY_SHIFT: u32 = 22;
const TABLE_SHIFT: u32 = 12;

/// One IOMMU: its banks, which are in the guest's memory, and the tables.
#[derive(Clone, Debug)]
pub(crate) struct Mmu {
    ram: Ram,
    banks: [RegisterWindow; 2],
    /// How often translation was enabled. The driver does so at the start of
    /// each job, when it attaches the address space of the job's file.
    attachments: Arc<AtomicU64>,
}

impl Mmu {
    /// The IOMMU of the core whose window is at `start`, after power-up.
    pub(crate) fn new(ram: &Ram, start: u64) -> Self {
        let bank = |at| RegisterWindow::new(ram.clone(), start + at);
        let banks = board::MMU_BANKS.map(bank);
        banks.iter().for_each(reset);
        Self {
            ram: ram.clone(),
            banks,
            attachments: Arc::default(),
        }
    }

    /// Handles a write of `value` by the guest to a register of bank `bank`.
    /// The effects must be there before the guest's next instruction: the
    /// driver polls STATUS after each command, and gives up at the second look
    /// if time is short.
    pub(crate) fn written(&self, bank: usize, offset: u64, value: u32) {
        let Some(bank) = self.banks.get(bank) else {
            return;
        };
        match offset {
            register::COMMAND => {
                if value == command::ENABLE_PAGING {
                    self.attachments.fetch_add(1, Ordering::Relaxed);
                }
                execute(bank, value);
            }
            register::INT_CLEAR => {
                bank.set(
                    register::INT_RAWSTAT,
                    bank.get(register::INT_RAWSTAT) & !value,
                );
                update_interrupt(bank);
            }
            register::INT_MASK => update_interrupt(bank),
            _ => {}
        }
    }

    /// Identifies the attached translations; see
    /// [`rknpu_chip::Bus::attachment`].
    pub(crate) fn attachment(&self) -> u64 {
        self.attachments.load(Ordering::Relaxed)
    }

    /// Address of the attached tables.
    pub(crate) fn tables(&self) -> u32 {
        self.banks[0].get(register::DTE_ADDR)
    }

    /// The physical address of an access, or `None` without a translation.
    /// Reads the tables at each access: the driver changes and replaces them
    /// from job to job.
    pub(crate) fn translate(&self, iova: u32, direction: Direction) -> Option<u64> {
        let bank = &self.banks[0];
        if bank.get(register::STATUS) & status::PAGING_ENABLED == 0 {
            return None;
        }
        let entry = |table: u64, index: u32| {
            let address = table + u64::from(index % ENTRIES) * ENTRY_BYTES;
            let entry = self.ram.load(address)?;
            (entry & VALID != 0).then_some(entry)
        };
        let directory = frame(bank.get(register::DTE_ADDR));
        let table = frame(entry(directory, iova >> DIRECTORY_SHIFT)?);
        let page = entry(table, iova >> TABLE_SHIFT)?;
        let right = match direction {
            Direction::Read => READABLE,
            Direction::Write => WRITABLE,
        };
        let offset = u64::from(iova) % board::PAGE_BYTES;
        (page & right != 0).then(|| frame(page) + offset)
    }

    /// Records an access without translation. Returns whether it interrupts.
    ///
    /// A real IOMMU holds the access until PAGE_FAULT_DONE and then retries it,
    /// without end if nothing maps the page, as with this driver. Here a task
    /// ends after one fault.
    pub(crate) fn fault(&self, iova: u64, direction: Direction) -> bool {
        let bank = &self.banks[0];
        let write = match direction {
            Direction::Read => 0,
            Direction::Write => status::PAGE_FAULT_IS_WRITE,
        };
        let status = bank.get(register::STATUS) & !status::PAGE_FAULT_IS_WRITE;
        bank.set(register::PAGE_FAULT_ADDR, iova as u32);
        bank.set(register::STATUS, status | status::PAGE_FAULT_ACTIVE | write);
        bank.set(
            register::INT_RAWSTAT,
            bank.get(register::INT_RAWSTAT) | PAGE_FAULT,
        );
        update_interrupt(bank);
        bank.get(register::INT_STATUS) != 0
    }
}

fn execute(bank: &RegisterWindow, value: u32) {
    let was = bank.get(register::STATUS);
    let status = match value {
        command::ENABLE_PAGING => was | status::PAGING_ENABLED,
        command::DISABLE_PAGING => was & !status::PAGING_ENABLED,
        command::ENABLE_STALL => was | status::STALL_ACTIVE,
        command::DISABLE_STALL => was & !status::STALL_ACTIVE,
        command::PAGE_FAULT_DONE => was & !status::PAGE_FAULT_ACTIVE,
        command::FORCE_RESET => {
            reset(bank);
            return;
        }
        // ZAP_CACHE: nothing is cached.
        _ => was,
    };
    bank.set(register::STATUS, status);
}

fn reset(bank: &RegisterWindow) {
    for offset in (0..=register::INT_STATUS).step_by(4) {
        bank.set(offset, 0);
    }
    let status = status::IDLE | status::REPLAY_BUFFER_EMPTY;
    bank.set(register::STATUS, status);
}

fn update_interrupt(bank: &RegisterWindow) {
    let raw = bank.get(register::INT_RAWSTAT);
    bank.set(register::INT_STATUS, raw & bank.get(register::INT_MASK));
}

/// The address in an entry, or in DTE_ADDR: bits 31..12 in place, 35..32 from
/// bits 11..8 and 39..36 from bits 7..4.
fn frame(entry: u32) -> u64 {
    let entry = u64::from(entry);
    entry & 0xffff_f000 | (entry & 0xf00) << 24 | (entry & 0xf0) << 32
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ram::tests::empty;

    /// Physical addresses of the tables below.
    const DIRECTORY: u64 = board::RAM + 0x1000;
    const TABLE: u64 = board::RAM + 0x2000;

    /// Maps the page at `iova` to the one at `page`, and enables paging.
    pub(crate) fn map(ram: &Ram, mmu: &Mmu, iova: u32, page: u64, rights: u32) {
        let directory = RegisterWindow::new(ram.clone(), DIRECTORY);
        let table = RegisterWindow::new(ram.clone(), TABLE);
        directory.set(u64::from(iova >> 22) * 4, TABLE as u32 | VALID);
        table.set(u64::from(iova >> 12 & 0x3ff) * 4, page as u32 | rights);
        for bank in 0..2 {
            mmu.banks[bank].set(register::DTE_ADDR, DIRECTORY as u32 | VALID);
            mmu.written(bank, register::COMMAND, command::ENABLE_PAGING);
        }
    }

    /// RAM of zeros, and core 0's IOMMU in it.
    pub(crate) fn memory() -> (Ram, Mmu) {
        let ram = empty();
        let mmu = Mmu::new(&ram, board::core(0));
        (ram, mmu)
    }

    #[test]
    fn the_walk_honours_validity_and_rights() {
        let (ram, mmu) = memory();
        let page = board::RAM + 0x7000;
        assert_eq!(mmu.translate(0x40_3010, Direction::Read), None);
        map(&ram, &mmu, 0x40_3000, page, VALID | READABLE);
        assert_eq!(mmu.translate(0x40_3010, Direction::Read), Some(page + 0x10));
        assert_eq!(mmu.translate(0x40_3010, Direction::Write), None);
        assert_eq!(mmu.translate(0x40_4000, Direction::Read), None);
        assert_eq!(mmu.translate(0x80_3000, Direction::Read), None);
        map(&ram, &mmu, 0x40_3000, page, READABLE | WRITABLE);
        assert_eq!(mmu.translate(0x40_3010, Direction::Read), None);
        map(&ram, &mmu, 0x40_3000, page, VALID | WRITABLE);
        assert_eq!(
            mmu.translate(0x40_3fff, Direction::Write),
            Some(page + 0xfff)
        );
        mmu.written(0, register::COMMAND, command::DISABLE_PAGING);
        assert_eq!(mmu.translate(0x40_3fff, Direction::Write), None);
    }

    #[test]
    fn tables_outside_ram_are_no_translation() {
        let (ram, mmu) = memory();
        map(&ram, &mmu, 0, board::RAM, VALID | READABLE);
        mmu.banks[0].set(register::DTE_ADDR, 0xffff_fff1);
        assert_eq!(mmu.translate(0, Direction::Read), None);
    }

    #[test]
    fn addresses_have_forty_bits() {
        assert_eq!(frame(0x1234_5001), 0x1234_5000);
        assert_eq!(frame(0x1234_5ab7), 0xba_1234_5000);
    }

    #[test]
    fn commands_show_in_status_at_once() {
        let (_, mmu) = memory();
        let bank = &mmu.banks[1];
        let idle = status::IDLE | status::REPLAY_BUFFER_EMPTY;
        let steps = [
            (command::ENABLE_PAGING, idle | status::PAGING_ENABLED),
            (
                command::ENABLE_STALL,
                idle | status::PAGING_ENABLED | status::STALL_ACTIVE,
            ),
            (command::DISABLE_STALL, idle | status::PAGING_ENABLED),
            (command::DISABLE_PAGING, idle),
        ];
        for (value, wanted) in steps {
            mmu.written(1, register::COMMAND, value);
            assert_eq!(bank.get(register::STATUS), wanted);
        }
        assert_eq!(mmu.attachment(), 1, "enabled once");
        bank.set(register::DTE_ADDR, 0xcafe_babe);
        mmu.written(1, register::COMMAND, command::FORCE_RESET);
        assert_eq!(bank.get(register::DTE_ADDR), 0);
    }

    #[test]
    fn a_fault_is_told_until_it_is_cleared() {
        let (_, mmu) = memory();
        let bank = &mmu.banks[0];
        assert!(!mmu.fault(0x5000, Direction::Write), "masked");
        bank.set(register::INT_MASK, PAGE_FAULT);
        assert!(mmu.fault(0x5000, Direction::Write));
        assert_eq!(bank.get(register::PAGE_FAULT_ADDR), 0x5000);
        let active = status::PAGE_FAULT_ACTIVE | status::PAGE_FAULT_IS_WRITE;
        assert_eq!(bank.get(register::STATUS) & active, active);
        mmu.written(0, register::COMMAND, command::PAGE_FAULT_DONE);
        mmu.written(0, register::INT_CLEAR, PAGE_FAULT);
        assert_eq!(bank.get(register::INT_STATUS), 0);
        assert_eq!(bank.get(register::STATUS) & status::PAGE_FAULT_ACTIVE, 0);
        assert!(mmu.fault(0x6000, Direction::Read));
        assert_eq!(bank.get(register::STATUS) & status::PAGE_FAULT_IS_WRITE, 0);
    }
}
