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

/// The kind of an ioctl's file: [`Kind::File`] if it may be a dma-buf, a sync_file or a
/// timeline of the device. The next library handles [`Kind::None`]. Does not change `errno`.
fn kind(fd: c_int, number: u32) -> Kind {
    look(Kind::None, || {
        if fd < 0 || OF_ANY_FILE.contains(&number) {
            Kind::None
        } else if is_device(fd) {
            Kind::Device
        } else if SHARED.contains(&sys::letter(number)) {
            Kind::File
        } else {
            Kind::None
        }
    })
}

hook! {
    // See ioctl(2). C declares it variadic, but the third argument is in the register of a
    // named one; see `open`.
    fn(fd: c_int, number: c_ulong, arg: *mut c_void) -> c_int, |next| {
        // The kernel takes 32 bits, which some callers sign-extend.
        let (code, address) = (number as u32, arg.expose_provenance() as u64);
        let kind = kind(fd, code);
        // SAFETY: the program made this call.
        let named = unsafe { Named::by_ioctl(kind, code, address) };
        let request = |ask| Request {
            number: code,
            arg: address,
            ..device::request(ask)
        };
        let result = match kind {
            Kind::Device => Some(of_device(fd, &request(RequestKind::Ioctl), &named)),
            Kind::File => shared(fd, &request(RequestKind::FileIoctl), &named),
            Kind::None => None,
        };
        match result {
            Some(result) => finish(|| result),
            None => next(fd, number, arg),
        }
    }
    ioctl(..);
}

/// Makes an ioctl of the device. Does not change `errno`.
fn of_device(fd: c_int, request: &Request, named: &Named) -> Result<c_int, Errno> {
    // SAFETY: a moment ago it was the device. If another thread closes it now, the kernel
    // returns an error, as for an ioctl.
    let connection = unsafe { BorrowedFd::borrow_raw(fd) };
    look(Err(Errno::IO), || {
        call(connection, request, named, named.returned(), None)?.result
    })
}

/// Makes an ioctl of a file that may belong to the device; `None` if it does not.
fn shared(fd: c_int, request: &Request, named: &Named) -> Option<Result<c_int, Errno>> {
    match device::ask_about(fd, request, named) {
        // The server knew the file, and this library then refused what it requested.
        Err(Errno::PROTO) => Some(Err(Errno::PROTO)),
        Ok(CallOutcome { value: 0, .. }) | Err(_) => None,
        Ok(CallOutcome { result, .. }) => Some(result),
    }
}
