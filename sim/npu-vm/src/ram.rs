// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's memory, which its processors use at the same time.

use std::fs::File;
use std::sync::atomic::Ordering;

use vm_memory::mmap::FromRangesError;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use crate::board;

/// The guest's memory, by physical address. An access outside RAM gives `None`.
#[derive(Clone, Debug)]
pub(crate) struct Ram(GuestMemoryMmap);

impl Ram {
    /// Maps the file that is QEMU's RAM.
    pub(crate) fn map(file: File) -> Result<Self, FromRangesError> {
        let start = GuestAddress(board::RAM);
        let file = FileOffset::new(file, 0);
        let ranges = [(start, board::RAM_BYTES as usize, Some(file))];
        GuestMemoryMmap::from_ranges_with_files(ranges).map(Self)
    }

    #[must_use]
    pub(crate) fn read(&self, address: u64, out: &mut [u8]) -> Option<()> {
        let address = GuestAddress(address);
        self.0.read_slice(out, address).ok()
    }

    #[must_use]
    pub(crate) fn write(&self, address: u64, data: &[u8]) -> Option<()> {
        let address = GuestAddress(address);
        self.0.write_slice(data, address).ok()
    }

    /// Reads a word that others may write at the same time.
    #[must_use]
    pub(crate) fn load(&self, address: u64) -> Option<u32> {
        let address = GuestAddress(address);
        self.0.load(address, Ordering::Acquire).ok()
    }
}

/// A window of registers: words of the guest's memory.
#[derive(Clone, Debug)]
pub(crate) struct RegisterWindow {
    ram: Ram,
    start: u64,
}

impl RegisterWindow {
    /// The registers from `start` on.
    pub(crate) fn new(ram: Ram, start: u64) -> Self {
        Self { ram, start }
    }

    pub(crate) fn get(&self, offset: u64) -> u32 {
        // The constants of `board` put all windows in RAM.
        self.ram.load(self.start + offset).unwrap_or_default()
    }

    pub(crate) fn set(&self, offset: u64, value: u32) {
        let address = GuestAddress(self.start + offset);
        // As above.
        let _ = self.ram.0.store(value, address, Ordering::Release);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// RAM of zeros.
    pub(crate) fn empty() -> Ram {
        let file = tempfile::tempfile().unwrap();
        file.set_len(board::RAM_BYTES).unwrap();
        Ram::map(file).unwrap()
    }

    #[test]
    fn accesses_end_with_ram() {
        let ram = empty();
        let end = board::RAM + board::RAM_BYTES;
        ram.write(end - 4, &[1, 2, 3, 4]).unwrap();
        assert_eq!(ram.load(end - 4), Some(0x0403_0201));
        assert_eq!(ram.write(end - 2, &[0; 4]), None);
        assert_eq!(ram.read(board::RAM - 1, &mut [0; 2]), None);
        assert_eq!(ram.load(0), None);
    }
}
