// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's memory, as `copy_from_user` and `copy_to_user` see it.
//!
//! Ioctl structures hold addresses: of job arrays, of handle arrays, of
//! string buffers. Whoever hosts the driver decides what such an address
//! means. A bad one is `EFAULT`, never a crash.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

use crate::words;

/// An address that the client has not mapped, or not with that permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad address in the client's memory")]
pub struct Efault;

/// Access to the memory of the process that made an ioctl.
pub trait UserMemory {
    /// Fills `out` from `addr` on.
    ///
    /// # Errors
    /// [`Efault`] if any byte of the range is not readable.
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Efault>;

    /// Writes `data` from `addr` on.
    ///
    /// # Errors
    /// [`Efault`] if any byte of the range is not writable.
    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Efault>;
}

/// Memory of one call, for callers inside this process that have values rather
/// than addresses. Its addresses are real ones, so that a kernel can follow
/// them too; whoever asks it for any other hears [`Efault`].
#[derive(Debug, Default)]
pub struct Arena {
    parts: RefCell<Vec<Part>>,
}

/// The bytes of one [`Arena::push`].
#[derive(Debug)]
struct Part {
    /// Aligned for any uAPI structure, and not to be moved. A kernel may write
    /// them during a call, as atomics allow.
    words: Box<[AtomicU64]>,
    /// Bytes that were placed.
    len: usize,
}

impl Part {
    fn addr(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    /// Where in it `len` bytes from `addr` on are.
    fn offset(&self, addr: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(addr.checked_sub(self.addr())?).ok()?;
        (offset.checked_add(len)? <= self.len).then_some(offset)
    }
}

impl Arena {
    /// An empty address space.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Places `data` and returns its address, which is good as long as this
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

    /// Lets `access` have the words that hold a range, and where it begins.
    fn with(
        &self,
        addr: u64,
        len: usize,
        access: impl FnOnce(&[AtomicU64], usize),
    ) -> Result<(), Efault> {
        if len == 0 {
            return Ok(());
        }
        let parts = self.parts.borrow();
        let mut found = parts
            .iter()
            .filter_map(|part| Some((part, part.offset(addr, len)?)));
        let (part, offset) = found.next().ok_or(Efault)?;
        access(&part.words, offset);
        Ok(())
    }
}

impl UserMemory for Arena {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Efault> {
        self.with(addr, out.len(), |words, at| words::load(words, at, out))
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Efault> {
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
        assert_eq!(arena.write(second + 1, &[0; 8]), Err(Efault));
        for addr in [0, 1, first - 1, first + 1, u64::MAX, second + 8] {
            assert_eq!(arena.read(addr, &mut out), Err(Efault));
        }
    }
}
