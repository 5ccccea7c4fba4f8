// SPDX-License-Identifier: MIT OR Apache-2.0
//! open and related functions.
//!
//! C declares some of them variadic: the mode is only present if a file may be created.
//! Here all arguments are named: on x86-64 and aarch64 Linux both kinds use the same
//! registers. An absent mode is an unrelated value of its register, passed on and never
//! read.

use std::os::fd::IntoRawFd;

use libc::{AT_FDCWD, FILE, c_char, c_int, mode_t};
use rustix::io::{Errno, FdFlags};
use rustix::net::SocketFlags;

use crate::device;
use crate::guard::finish;
use crate::next::hook;
use crate::target::{PathTarget, target};

fn open_node(flags: c_int) -> c_int {
    finish(|| {
        if flags & libc::O_DIRECTORY != 0 {
            return Err(Errno::NOTDIR);
        }
        if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
            return Err(Errno::EXIST);
        }
        let mut socket = SocketFlags::empty();
        socket.set(SocketFlags::CLOEXEC, flags & libc::O_CLOEXEC != 0);
        let connection = device::open(socket)?;
        if flags & libc::O_NONBLOCK != 0 {
            rustix::io::ioctl_fionbio(&connection, true)?;
        }
        Ok(connection.into_raw_fd())
    })
}

/// Opens the kernel's sw_sync file, for fences that the program signals itself.
fn open_sw_sync(flags: c_int) -> c_int {
    finish(|| {
        let file = device::open_sw_sync()?;
        if flags & libc::O_CLOEXEC == 0 {
            rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
        }
        Ok(file.into_raw_fd())
    })
}

/// Opens the target of a path; `next` opens everything but the node and sw_sync.
fn open_at(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    next: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    match &target(directory, path) {
        PathTarget::Node => open_node(flags),
        PathTarget::SwSync => open_sw_sync(flags),
        // The path is absolute, so the directory does not matter.
        PathTarget::Shadow(shadow) => next(shadow.as_ptr()),
        PathTarget::Other => next(path),
    }
}

hook! {
    // See open(2).
    fn(path: *const c_char, flags: c_int) -> c_int, |next| {
        open_at(AT_FDCWD, path, flags, |path| next(path, flags))
    }
    open(.., mode: mode_t);
    open64(.., mode: mode_t);
    __open_2(..);
    __open64_2(..);
}

hook! {
    // See openat(2).
    fn(directory: c_int, path: *const c_char, flags: c_int) -> c_int, |next| {
        open_at(directory, path, flags, |path| next(directory, path, flags))
    }
    openat(.., mode: mode_t);
    openat64(.., mode: mode_t);
    __openat_2(..);
    __openat64_2(..);
}

hook! {
    // See fopen(3).
    fn(path: *const c_char, mode: *const c_char) -> *mut FILE, |next| {
        match &target(AT_FDCWD, path) {
            // SAFETY: the program gave the mode.
            PathTarget::Node => unsafe { node_stream(mode) },
            PathTarget::Shadow(shadow) => next(shadow.as_ptr(), mode),
            // sw_sync is not usable as a stream.
            PathTarget::SwSync | PathTarget::Other => next(path, mode),
        }
    }
    fopen(..);
    fopen64(..);
}

/// Opens the node as a stream. It is not usable for anything, but the kernel allows it.
///
/// # Safety
/// `mode` is one of fopen(3).
unsafe fn node_stream(mode: *const c_char) -> *mut FILE {
    let descriptor = open_node(libc::O_RDWR);
    if descriptor < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the descriptor is new, and the mode is the program's.
    let stream = unsafe { libc::fdopen(descriptor, mode) };
    if stream.is_null() {
        // SAFETY: nobody else has the descriptor.
        unsafe { libc::close(descriptor) };
    }
    stream
}
