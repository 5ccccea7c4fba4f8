// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap of the device and of its dma-bufs. For the device, a file of the server is mapped
//! instead. For a dma-buf, the server decides whether the kernel would allow the mapping.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_void, off_t, size_t};
use npu_wire::{Request, RequestKind};
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::call::{CallOutcome, call};
use crate::device;
use crate::guard::{errno, finish, look, set_errno};
use crate::named::Named;
use crate::next::hook;
use crate::target::is_device;
use crate::wire::Room;

hook! {
    // See mmap(2).
    fn(
        addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void, |next| {
        let pass = |fd: c_int, offset: off_t| next(addr, len, prot, flags, fd, offset);
        let request = |ask, offset: off_t| Request {
            len: len as u64,
            offset: offset.cast_unsigned(),
            prot: prot.cast_unsigned(),
            flags: flags.cast_unsigned(),
            ..device::request(ask)
        };
        if !is_of_device(fd, flags) {
            if !look(false, || may_be_dma_buf(fd, flags)) {
                return pass(fd, offset);
            }
            return match offset_in_dma_buf(fd, &request(RequestKind::FileMmap, offset)) {
                Some(offset) => pass(fd, offset),
                None => libc::MAP_FAILED,
            };
        }
        let mut found = file_to_map(fd, &request(RequestKind::Mmap, offset));
        // The server may forward a node that is itself a connection to another server.
        while let Some((file, offset)) = &found
            && is_of_device(file.as_raw_fd(), flags)
        {
            found = file_to_map(file.as_raw_fd(), &request(RequestKind::Mmap, *offset));
        }
        match found {
            Some((file, offset)) => {
                let mapped = pass(file.as_raw_fd(), offset);
                // Closing the file must not change mmap's `errno`.
                let said = errno();
                drop(file);
                set_errno(said);
                mapped
            }
            None => libc::MAP_FAILED,
        }
    }
    // `off_t` has 64 bits in both.
    mmap(..);
    mmap64(..);
}

/// Whether a mapping is one of the device. Does not change `errno`.
fn is_of_device(fd: c_int, flags: c_int) -> bool {
    fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 && look(false, || is_device(fd))
}

/// Offset at which to map a file that may be a dma-buf of the device. `None`, with `errno`
/// set, if it is one and the kernel would refuse the mapping.
fn offset_in_dma_buf(fd: c_int, request: &Request) -> Option<off_t> {
    match device::ask_about(fd, request, &Named::nothing()) {
        Ok(CallOutcome { value: 0, .. }) | Err(_) => Some(request.offset.cast_signed()),
        Ok(CallOutcome { result: Ok(_), .. }) => Some(0),
        Ok(CallOutcome {
            result: Err(errno), ..
        }) => {
            set_errno(errno.raw_os_error());
            None
        }
    }
}

/// Whether a mapping may be one of a dma-buf of the software model: those are memfds with
/// certain seals. This avoids a call to the server for every mapping of the program.
fn may_be_dma_buf(fd: c_int, flags: c_int) -> bool {
    if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 {
        return false;
    }
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    // SAFETY: only the kernel uses the number, and returns an error if it is not open.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals == sealed)
}

/// The file and offset to map instead of the device; `None` with `errno` set.
fn file_to_map(fd: c_int, request: &Request) -> Option<(OwnedFd, off_t)> {
    let mut found = None;
    finish(|| {
        // SAFETY: a moment ago it was the device. If another thread closes it now, the
        // kernel returns an error, as for mmap.
        let connection = unsafe { BorrowedFd::borrow_raw(fd) };
        let outcome = call(connection, request, &Named::nothing(), Room::NONE, None)?;
        outcome.result?;
        // This process had no descriptor left for it.
        let file = outcome.file.ok_or(Errno::NFILE)?;
        found = Some((file, outcome.value.cast_signed()));
        Ok(0)
    });
    found
}
