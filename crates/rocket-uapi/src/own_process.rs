// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to this process's memory at addresses that may be invalid: only this file asks
//! the kernel to copy from and to them.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use rustix::io::Errno;

use crate::caller::Caller;

/// The memory of this process, accessed through the kernel, which checks each address.
#[derive(Debug)]
pub struct OwnProcess(());

impl OwnProcess {
    /// Makes this process's memory accessible to ioctls.
    ///
    /// # Safety
    /// Every address that an ioctl structure or a holder of this value names must be either
    /// unmapped, or memory that may be accessed that way: the ioctl's definition allows the
    /// access, and the access breaks no reference that exists.
    #[must_use]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

/// Copies through a pipe, for hosts without `process_vm_readv` such as qemu-user. A system
/// call that reads or writes a buffer fails with `EFAULT` if the page is unmapped *or its
/// protection forbids the access*, like an ioctl. (`/proc/self/mem` is unsuitable: it
/// writes read-only pages.)
mod pipe {
    use super::{AsRawFd, Errno, OwnedFd, libc};

    /// Bytes per copy. POSIX guarantees this much room in an empty pipe, so no call blocks.
    const CHUNK_BYTES: usize = 512;

    fn new() -> Result<(OwnedFd, OwnedFd), Errno> {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|_| Errno::FAULT)
    }

    fn at(addr: u64, offset: usize) -> Result<usize, Errno> {
        let addr = usize::try_from(addr).map_err(|_| Errno::FAULT)?;
        addr.checked_add(offset).ok_or(Errno::FAULT)
    }

    pub(super) fn read(addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        let (reader, writer) = new()?;
        for (index, chunk) in out.chunks_mut(CHUNK_BYTES).enumerate() {
            let from = at(addr, index * CHUNK_BYTES)?;
            let from = std::ptr::with_exposed_provenance::<libc::c_void>(from);
            // SAFETY: the kernel checks the address, returns EFAULT for a bad one, and only
            // reads.
            let copied = unsafe { libc::write(writer.as_raw_fd(), from, chunk.len()) };
            if usize::try_from(copied) != Ok(chunk.len()) {
                return Err(Errno::FAULT);
            }
            let moved = rustix::io::read(&reader, &mut *chunk).map_err(|_| Errno::FAULT)?;
            if moved != chunk.len() {
                return Err(Errno::FAULT);
            }
        }
        Ok(())
    }

    pub(super) fn write(addr: u64, data: &[u8]) -> Result<(), Errno> {
        let (reader, writer) = new()?;
        for (index, chunk) in data.chunks(CHUNK_BYTES).enumerate() {
            let to = at(addr, index * CHUNK_BYTES)?;
            let to = std::ptr::with_exposed_provenance_mut::<libc::c_void>(to);
            let moved = rustix::io::write(&writer, chunk).map_err(|_| Errno::FAULT)?;
            if moved != chunk.len() {
                return Err(Errno::FAULT);
            }
            // SAFETY: the kernel checks the address and its protection, and returns EFAULT
            // if this process could not write there. If it could, the caller of
            // `OwnProcess::new` has allowed the write.
            let copied = unsafe { libc::read(reader.as_raw_fd(), to, chunk.len()) };
            if usize::try_from(copied) != Ok(chunk.len()) {
                return Err(Errno::FAULT);
            }
        }
        Ok(())
    }
}

/// Whether the host lacks `process_vm_readv`, as qemu-user does.
static WITHOUT_VM_CALLS: AtomicBool = AtomicBool::new(false);

/// Result of a `process_vm_*` call for `len` bytes; `None` if the host lacks the call.
fn outcome(copied: nix::Result<usize>, len: usize) -> Option<Result<(), Errno>> {
    use nix::errno::Errno::{ENOSYS, EPERM};
    match copied {
        Ok(copied) if copied == len => Some(Ok(())),
        Err(ENOSYS | EPERM) => {
            WITHOUT_VM_CALLS.store(true, Ordering::Relaxed);
            None
        }
        Ok(_) | Err(_) => Some(Err(Errno::FAULT)),
    }
}

/// Describes `len` bytes of this process from `addr` on for a `process_vm_*` call; `None`
/// if the host is known to lack the call.
fn remote(addr: u64, len: usize) -> Result<Option<RemoteIoVec>, Errno> {
    let base = usize::try_from(addr).map_err(|_| Errno::FAULT)?;
    let is_there = !WITHOUT_VM_CALLS.load(Ordering::Relaxed);
    Ok(is_there.then_some(RemoteIoVec { base, len }))
}

/// Fills `out` from the memory of this process at `addr`, like `copy_from_user`. It
/// allocates nothing, and may change `errno`.
///
/// # Errors
/// `EFAULT` if any byte of the range cannot be read.
pub fn read_own_memory(addr: u64, out: &mut [u8]) -> Result<(), Errno> {
    let len = out.len();
    if len == 0 {
        return Ok(());
    }
    let called = remote(addr, len)?.and_then(|remote| {
        let copied = process_vm_readv(Pid::this(), &mut [IoSliceMut::new(out)], &[remote]);
        outcome(copied, len)
    });
    called.unwrap_or_else(|| pipe::read(addr, out))
}

impl Caller for OwnProcess {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        read_own_memory(addr, out)
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Errno> {
        let len = data.len();
        if len == 0 {
            return Ok(());
        }
        let called = remote(addr, len)?.and_then(|remote| {
            let copied = process_vm_writev(Pid::this(), &[IoSlice::new(data)], &[remote]);
            outcome(copied, len)
        });
        called.unwrap_or_else(|| pipe::write(addr, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read and write functions of one method. The second method is for hosts that lack the
    /// first.
    type Copier = (
        fn(u64, &mut [u8]) -> Result<(), Errno>,
        fn(u64, &[u8]) -> Result<(), Errno>,
    );

    fn copiers() -> [Copier; 2] {
        fn own() -> OwnProcess {
            // SAFETY: the addresses used below belong to local arrays or to mappings made
            // by the test, or no process can map them.
            unsafe { OwnProcess::new() }
        }
        [
            (
                |addr, out| own().read(addr, out),
                |addr, data| own().write(addr, data),
            ),
            (pipe::read, pipe::write),
        ]
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs process_vm_readv")]
    fn a_wild_pointer_is_efault() {
        for (read, write) in copiers() {
            let mut local = *b"hello";
            let addr = (&raw mut local).expose_provenance() as u64;
            let mut out = [0; 5];
            read(addr, &mut out).unwrap();
            assert_eq!(&out, b"hello");
            write(addr, b"HELLO").unwrap();
            assert_eq!(std::hint::black_box(&local), b"HELLO");
            for wild in [0, 8, u64::MAX - 4, 0xdead_0000_0000_0000] {
                assert_eq!(read(wild, &mut out), Err(Errno::FAULT));
                assert_eq!(write(wild, &out), Err(Errno::FAULT));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs process_vm_readv")]
    fn long_ranges_arrive_whole() {
        for (read, write) in copiers() {
            let mut target = vec![0u8; 3000];
            let data: Vec<u8> = (0..3000u32).map(|byte| byte as u8).collect();
            let addr = target.as_mut_ptr().expose_provenance() as u64;
            write(addr, &data).unwrap();
            let mut back = vec![0; 3000];
            read(addr, &mut back).unwrap();
            assert_eq!(std::hint::black_box(&target), &data);
            assert_eq!(back, data);
        }
    }

    /// Page protection applies as for an ioctl: no write to read-only pages, no read of
    /// pages without access.
    #[test]
    #[cfg_attr(miri, ignore = "needs process_vm_readv")]
    fn protection_is_respected() {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
        const LEN: usize = 4096;
        let (prot, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place that the kernel chooses.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, prot, flags) }.unwrap();
        let addr = page.expose_provenance() as u64;
        for (read, write) in copiers() {
            // SAFETY: only this test uses the mapping made above.
            unsafe { mprotect(page, LEN, MprotectFlags::READ) }.unwrap();
            assert_eq!(write(addr, &[1; 8]), Err(Errno::FAULT));
            let mut out = [9; 8];
            read(addr, &mut out).unwrap();
            assert_eq!(out, [0; 8]);
            // SAFETY: as above.
            unsafe { mprotect(page, LEN, MprotectFlags::empty()) }.unwrap();
            assert_eq!(read(addr, &mut out), Err(Errno::FAULT));
            assert_eq!(write(addr, &out), Err(Errno::FAULT));
        }
        // SAFETY: the mapping made above is no longer in use.
        unsafe { munmap(page, LEN) }.unwrap();
    }
}
