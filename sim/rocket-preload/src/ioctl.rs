// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctl of the device, and of its dma-bufs, sync_files and timelines.

use std::os::fd::BorrowedFd;

use libc::{c_int, c_ulong, c_void};
use npu_wire::{Request, RequestKind};
use rocket_uapi::sys;
use rustix::io::Errno;

use crate::call::{CallOutcome, call};
use crate::device;
use crate::guard::{finish, look};
use crate::named::{Kind, Named};
use crate::next::hook;
use crate::target::is_device;

/// The letters of the requests of dma-bufs, sync_files and timelines.
const SHARED: [u32; 3] = [
    sys::letter(sys::DMA_BUF_SYNC),
    sys::letter(sys::SYNC_MERGE),
    sys::letter(sys::SW_SYNC_INC),
];

/// Requests that the kernel handles itself for any file (fs/ioctl.c, do_vfs_ioctl).
const OF_ANY_FILE: [u32; 5] = [
    libc::FIOCLEX as u32,
    libc::FIONCLEX as u32,
    libc::FIONBIO as u32,
    libc::FIOASYNC as u32,
    // FIOQSIZE
    0x5460,
];

/// Kind of the file of an ioctl.
pub(crate) enum Subject {
    /// An open file of the device.
    Device,
    /// A file that may be a dma-buf, a sync_file or a timeline of the device.
    MaybeShared,
    /// Any other file: the next library handles it.
    Other,
}

/// Finds the kind of file of an ioctl. Does not change `errno`.
pub(crate) fn subject(fd: c_int, number: u32) -> Subject {
    look(Subject::Other, || {
        if fd < 0 || OF_ANY_FILE.contains(&number) {
            return Subject::Other;
        }
        if is_device(fd) {
            return Subject::Device;
        }
        if SHARED.contains(&sys::letter(number)) {
            Subject::MaybeShared
        } else {
            Subject::Other
        }
    })
}

hook! {
    // See ioctl(2). C declares it variadic, but the third argument is in the register of a
    // named one; see `open`.
    fn(fd: c_int, number: c_ulong, arg: *mut c_void) -> c_int, |next| {
        // The kernel takes 32 bits, which some callers sign-extend.
        let request = number as u32;
        match subject(fd, request) {
            // SAFETY: the program made this call.
            Subject::Device => finish(|| unsafe { of_device(fd, request, arg) }),
            // SAFETY: the program made this call.
            Subject::MaybeShared => unsafe { shared(fd, request, arg) }
                .unwrap_or_else(|| next(fd, number, arg)),
            Subject::Other => next(fd, number, arg),
        }
    }
    ioctl(..);
}

/// Makes an ioctl of the device.
///
/// # Safety
/// As ioctl(2).
unsafe fn of_device(fd: c_int, number: u32, arg: *mut c_void) -> Result<c_int, Errno> {
    // SAFETY: a moment ago it was the device. If another thread closes it now, the kernel
    // returns an error, as for an ioctl.
    let connection = unsafe { BorrowedFd::borrow_raw(fd) };
    let arg = arg.expose_provenance() as u64;
    // SAFETY: the caller promises it.
    let named = unsafe { Named::by_ioctl(Kind::Device, number, arg) };
    let request = Request {
        number,
        arg,
        ..device::request(RequestKind::Ioctl)
    };
    call(connection, &request, &named, named.returned(), None)?.result
}

/// Makes an ioctl of a file that may belong to the device; `None` if it does not.
///
/// # Safety
/// As ioctl(2).
unsafe fn shared(fd: c_int, number: u32, arg: *mut c_void) -> Option<c_int> {
    let arg = arg.expose_provenance() as u64;
    // SAFETY: the caller promises it.
    let named = unsafe { Named::by_ioctl(Kind::File, number, arg) };
    let request = Request {
        number,
        arg,
        ..device::request(RequestKind::FileIoctl)
    };
    match device::ask_about(fd, &request, &named) {
        // The server knew the file, and this library then refused what it requested.
        Err(Errno::PROTO) => Some(finish(|| Err(Errno::PROTO))),
        Ok(CallOutcome { value: 0, .. }) | Err(_) => None,
        Ok(CallOutcome { result, .. }) => Some(finish(|| result)),
    }
}
