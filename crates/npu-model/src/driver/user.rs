// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's memory, as `copy_from_user` and `copy_to_user` see it.
//!
//! Ioctl structures hold addresses: of job arrays, of handle arrays, of
//! string buffers. Whoever hosts the driver decides what such an address
//! means. A bad one is `EFAULT`, never a crash.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

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

/// A made-up address space of one call, for callers inside this process
/// that have values rather than addresses.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: RefCell<Vec<u8>>,
}

/// Address of the first byte of an [`Arena`]; not 0, so that no address in
/// it looks like a null pointer.
const ARENA_BASE: u64 = 0x1_0000;

/// Alignment of what is put into an [`Arena`]: enough for any uAPI struct.
const ARENA_ALIGN: usize = 8;

impl Arena {
    /// An empty address space.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Places `data` and returns its address.
    pub fn push(&self, data: &[u8]) -> u64 {
        let mut bytes = self.bytes.borrow_mut();
        let start = bytes.len().next_multiple_of(ARENA_ALIGN);
        bytes.resize(start, 0);
        bytes.extend_from_slice(data);
        ARENA_BASE + start as u64
    }

    fn range(&self, addr: u64, len: usize) -> Result<std::ops::Range<usize>, Efault> {
        let start = addr.checked_sub(ARENA_BASE).ok_or(Efault)?;
        let start = usize::try_from(start).map_err(|_| Efault)?;
        let end = start.checked_add(len).ok_or(Efault)?;
        if end > self.bytes.borrow().len() {
            return Err(Efault);
        }
        Ok(start..end)
    }
}

impl UserMemory for Arena {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Efault> {
        let range = self.range(addr, out.len())?;
        out.copy_from_slice(&self.bytes.borrow()[range]);
        Ok(())
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Efault> {
        let range = self.range(addr, data.len())?;
        self.bytes.borrow_mut()[range].copy_from_slice(data);
        Ok(())
    }
}

/// The memory of this very process, through the kernel, which checks each
/// address.
#[derive(Debug)]
pub struct OwnProcess(());

impl OwnProcess {
    /// Lets ioctls read and write the memory of this process.
    ///
    /// # Safety
    /// Every address that an ioctl structure holds while this is in use must
    /// be either unmapped or memory that the ioctl is allowed to read or
    /// write by its definition: nobody holds a reference that such an access
    /// would break.
    #[must_use]
    pub unsafe fn new() -> Self {
        Self(())
    }

    /// The way for hosts without `process_vm_readv`, such as qemu-user.
    fn mem(write: bool) -> Result<File, Efault> {
        OpenOptions::new()
            .read(true)
            .write(write)
            .open("/proc/self/mem")
            .map_err(|_| Efault)
    }
}

/// Whether a failed `process_vm_*` call says that the host lacks the call,
/// rather than that the address is bad.
fn call_is_missing(errno: nix::errno::Errno) -> bool {
    use nix::errno::Errno;
    matches!(errno, Errno::ENOSYS | Errno::EPERM)
}

impl UserMemory for OwnProcess {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Efault> {
        let len = out.len();
        if len == 0 {
            return Ok(());
        }
        let base = usize::try_from(addr).map_err(|_| Efault)?;
        let copied = process_vm_readv(
            Pid::this(),
            &mut [IoSliceMut::new(out)],
            &[RemoteIoVec { base, len }],
        );
        match copied {
            Ok(copied) if copied == len => Ok(()),
            Err(errno) if call_is_missing(errno) => Self::mem(false)?
                .read_exact_at(out, addr)
                .map_err(|_| Efault),
            Ok(_) | Err(_) => Err(Efault),
        }
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Efault> {
        let len = data.len();
        if len == 0 {
            return Ok(());
        }
        let base = usize::try_from(addr).map_err(|_| Efault)?;
        let copied = process_vm_writev(
            Pid::this(),
            &[IoSlice::new(data)],
            &[RemoteIoVec { base, len }],
        );
        match copied {
            Ok(copied) if copied == len => Ok(()),
            Err(errno) if call_is_missing(errno) => Self::mem(true)?
                .write_all_at(data, addr)
                .map_err(|_| Efault),
            Ok(_) | Err(_) => Err(Efault),
        }
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
        for addr in [0, 1, first - 1, u64::MAX, second + 8] {
            assert_eq!(arena.read(addr, &mut out), Err(Efault));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs process_vm_readv")]
    fn a_wild_pointer_is_efault() {
        // SAFETY: the addresses used below are a local array, and addresses
        // that no process can map.
        let own = unsafe { OwnProcess::new() };
        let mut local = *b"hello";
        let addr = (&raw mut local) as u64;
        let mut out = [0; 5];
        own.read(addr, &mut out).unwrap();
        assert_eq!(&out, b"hello");
        own.write(addr, b"HELLO").unwrap();
        assert_eq!(std::hint::black_box(&local), b"HELLO");
        for wild in [0, 8, u64::MAX - 4, 0xdead_0000_0000_0000] {
            assert_eq!(own.read(wild, &mut out), Err(Efault));
            assert_eq!(own.write(wild, &out), Err(Efault));
        }
    }
}
