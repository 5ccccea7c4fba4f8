// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of callers in this process that pass values instead of addresses.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;

use crate::caller::Caller;
use crate::words;

/// Memory of one call, for callers in this process that pass values instead of addresses.
/// Its addresses are real, so a kernel can follow them too. Access to any other address
/// fails with `EFAULT`.
#[derive(Debug, Default)]
pub struct Arena {
    parts: RefCell<Vec<Part>>,
}

/// The bytes of one [`Arena::push`].
#[derive(Debug)]
struct Part {
    /// The bytes, aligned for any uAPI structure. They must not move. A kernel may write
    /// them during a call, which atomics allow.
    words: Box<[AtomicU64]>,
    /// Length in bytes.
    len: usize,
}

impl Part {
    fn addr(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    /// Offset of the range in this part; `None` if the range leaves it.
    fn offset(&self, addr: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(addr.checked_sub(self.addr())?).ok()?;
        (offset.checked_add(len)? <= self.len).then_some(offset)
    }
}

impl Arena {
    /// An empty arena.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Copies `data` into the arena and returns its address, valid as long as the arena
    /// lives.
    pub fn push(&self, data: &[u8]) -> u64 {
        let count = data.len().div_ceil(size_of::<AtomicU64>());
        let part = Part {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
            len: data.len(),
        };
        words::store(&part.words, 0, data);
        let addr = part.addr();
        self.parts.borrow_mut().push(part);
        addr
    }

    /// Calls `access` with the words that hold a range, and the range's offset in them.
    fn with(
        &self,
        addr: u64,
        len: usize,
        access: impl FnOnce(&[AtomicU64], usize),
    ) -> Result<(), Errno> {
        if len == 0 {
            return Ok(());
        }
        let parts = self.parts.borrow();
        let mut found = parts
            .iter()
            .filter_map(|part| Some((part, part.offset(addr, len)?)));
        let (part, offset) = found.next().ok_or(Errno::FAULT)?;
        access(&part.words, offset);
        Ok(())
    }
}

impl Caller for Arena {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        self.with(addr, out.len(), |words, at| words::load(words, at, out))
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Errno> {
        self.with(addr, data.len(), |words, at| words::store(words, at, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_knows_its_own_bytes_only() {
        let arena = Arena::new();
        let first = arena.push(b"abc");
        let second = arena.push(&7u64.to_le_bytes());
        assert_eq!(second % 8, 0);
        let mut out = [0; 3];
        arena.read(first, &mut out).unwrap();
        assert_eq!(&out, b"abc");
        arena.write(second, &[9; 8]).unwrap();
        assert_eq!(arena.write(second + 1, &[0; 8]), Err(Errno::FAULT));
        for addr in [0, 1, first - 1, first + 1, u64::MAX, second + 8] {
            assert_eq!(arena.read(addr, &mut out), Err(Errno::FAULT));
        }
    }
}
