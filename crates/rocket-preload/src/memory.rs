// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading memory of the program at an address that may be wrong.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_void;
use rustix::pipe::PipeFlags;

/// Smallest page of any Linux: a read within one is of mapped memory or not.
const PAGE_BYTES: usize = 4096;

/// Whether the host lacks `process_vm_readv`, as qemu-user does.
static WITHOUT_VM_READ: AtomicBool = AtomicBool::new(false);

/// Reads a C string of at most `out` less its terminator; `None` if it is
/// longer, or cannot be read.
pub(crate) fn read_text(addr: usize, out: &mut [u8]) -> Option<&[u8]> {
    let mut len = 0;
    while len < out.len() {
        let at = addr.checked_add(len)?;
        let now = (PAGE_BYTES - at % PAGE_BYTES).min(out.len() - len);
        let part = &mut out[len..len + now];
        if !copy(at, part) {
            return None;
        }
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            return Some(&out[..len + end]);
        }
        len += now;
    }
    None
}

/// Reads all of `out`.
pub(crate) fn read(addr: u64, out: &mut [u8]) -> bool {
    usize::try_from(addr).is_ok_and(|addr| copy(addr, out))
}

fn copy(addr: usize, out: &mut [u8]) -> bool {
    if WITHOUT_VM_READ.load(Ordering::Relaxed) {
        return copy_by_pipe(addr, out);
    }
    let local = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(addr),
        iov_len: out.len(),
    };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the local part is a slice that lives; the kernel checks the
    // other, and reads only.
    let copied = unsafe { libc::process_vm_readv(own, &local, 1, &remote, 1, 0) };
    if copied < 0 && matches!(crate::guard::errno(), libc::ENOSYS | libc::EPERM) {
        WITHOUT_VM_READ.store(true, Ordering::Relaxed);
        return copy_by_pipe(addr, out);
    }
    usize::try_from(copied) == Ok(out.len())
}

/// Writes to a pipe fail with `EFAULT` where the memory cannot be read.
fn copy_by_pipe(addr: usize, out: &mut [u8]) -> bool {
    // What every empty pipe takes without blocking.
    const CHUNK_BYTES: usize = 512;
    let Ok((reader, writer)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC) else {
        return false;
    };
    out.chunks_mut(CHUNK_BYTES)
        .enumerate()
        .all(|(index, chunk)| {
            let Some(from) = addr.checked_add(index * CHUNK_BYTES) else {
                return false;
            };
            let from = std::ptr::with_exposed_provenance::<c_void>(from);
            // SAFETY: the kernel checks the address, and reads only.
            let written = unsafe { libc::write(writer.as_raw_fd(), from, chunk.len()) };
            let len = chunk.len();
            usize::try_from(written) == Ok(len) && rustix::io::read(&reader, chunk) == Ok(len)
        })
}
