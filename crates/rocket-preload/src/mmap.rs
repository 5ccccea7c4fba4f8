// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap of the device: a file of the server's is mapped in its place.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_void, off_t, size_t};
use npu_wire::{Ask, Request};
use rustix::io::Errno;

use crate::call::call;
use crate::device;
use crate::guard::{errno, finish, look, set_errno};
use crate::named::Named;
use crate::next::next;
use crate::target::is_device;
use crate::wire::Room;

/// Declares mmap under one of its names; `off_t` has 64 bits in each.
macro_rules! map {
    ($($name:ident)*) => {$(
        /// See mmap(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t,
        ) -> *mut c_void {
            let pass = |fd: c_int, offset: off_t| {
                // SAFETY: the function of that name, as the program called it;
                // perhaps with a file that is meant to be mapped.
                unsafe {
                    next!($name: fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
                        addr, len, prot, flags, fd, offset)
                }
            };
            if !is_of_device(fd, flags) {
                return pass(fd, offset);
            }
            let mut found = file_to_map(fd, len, prot, flags, offset);
            // Behind the server may be a node that is another server's.
            while let Some((file, offset)) = &found
                && is_of_device(file.as_raw_fd(), flags)
            {
                found = file_to_map(file.as_raw_fd(), len, prot, flags, *offset);
            }
            match found {
                Some((file, offset)) => {
                    let mapped = pass(file.as_raw_fd(), offset);
                    // Closing may not change what mmap says.
                    let said = errno();
                    drop(file);
                    set_errno(said);
                    mapped
                }
                None => libc::MAP_FAILED,
            }
        }
    )*};
}

map! { mmap mmap64 }

/// Whether a mapping is one of the device. Leaves `errno` alone.
pub(crate) fn is_of_device(fd: c_int, flags: c_int) -> bool {
    fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 && look(false, || is_device(fd))
}

/// What to map in the place of the device; `None` with `errno` set.
pub(crate) fn file_to_map(
    fd: c_int,
    len: size_t,
    prot: c_int,
    flags: c_int,
    offset: off_t,
) -> Option<(OwnedFd, off_t)> {
    let mut found = None;
    finish(|| {
        // SAFETY: a moment ago it was the device. If another thread closes it
        // now the kernel says so, as to mmap.
        let connection = unsafe { BorrowedFd::borrow_raw(fd) };
        let request = Request {
            len: len as u64,
            offset: offset.cast_unsigned(),
            prot: prot.cast_unsigned(),
            flags: flags.cast_unsigned(),
            ..device::request(Ask::Mmap)
        };
        let outcome = call(connection, &request, &Named::nothing(), Room::NONE, None)?;
        outcome.result?;
        // The kernel had no number left for it.
        let file = outcome.file.ok_or(Errno::NFILE)?;
        found = Some((file, outcome.value.cast_signed()));
        Ok(0)
    });
    found
}
