// SPDX-License-Identifier: MIT OR Apache-2.0
//! open and its family.
//!
//! C declares some of them variadic: the mode is there only for files that are
//! made. Defined here with all arguments: on x86-64 and aarch64 Linux variadic
//! arguments come in the same registers as named ones, and a mode that is not
//! there is a register's left-over, passed on and not looked at.

use std::os::fd::IntoRawFd;

use libc::{AT_FDCWD, FILE, c_char, c_int, mode_t};
use rustix::io::{Errno, FdFlags};
use rustix::net::SocketFlags;

use crate::device;
use crate::guard::finish;
use crate::next::next;
use crate::target::{PathTarget, target};

/// Opens the node.
pub(crate) fn open_node(flags: c_int) -> c_int {
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

/// Opens the file of fences that the program signals itself.
pub(crate) fn open_sw_sync(flags: c_int) -> c_int {
    finish(|| {
        let file = device::open_sw_sync()?;
        if flags & libc::O_CLOEXEC == 0 {
            rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
        }
        Ok(file.into_raw_fd())
    })
}

/// Declares functions that take a path as the first argument.
macro_rules! open_by_path {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// See open(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int $(, $argument: $type)*) -> c_int {
            let meant = target(AT_FDCWD, path);
            let path = match &meant {
                PathTarget::Node => return open_node(flags),
                PathTarget::SwSync => return open_sw_sync(flags),
                PathTarget::Shadow(shadow) => shadow.as_ptr(),
                PathTarget::Other => path,
            };
            // SAFETY: the function of that name, with what the program gave it
            // or the C string of a path of ours.
            unsafe {
                next!($name: fn(*const c_char, c_int $(, $type)*) -> c_int; path, flags $(, $argument)*)
            }
        }
    )*};
}

open_by_path! {
    open(mode: mode_t);
    open64(mode: mode_t);
    __open_2();
    __open64_2();
}

/// Declares functions that take a directory and a path.
macro_rules! open_in_directory {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// See openat(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            directory: c_int, path: *const c_char, flags: c_int $(, $argument: $type)*
        ) -> c_int {
            let meant = target(directory, path);
            let path = match &meant {
                PathTarget::Node => return open_node(flags),
                PathTarget::SwSync => return open_sw_sync(flags),
                // Absolute: the directory does not matter.
                PathTarget::Shadow(shadow) => shadow.as_ptr(),
                PathTarget::Other => path,
            };
            // SAFETY: the function of that name, with what the program gave it
            // or the C string of a path of ours.
            unsafe {
                next!($name: fn(c_int, *const c_char, c_int $(, $type)*) -> c_int;
                    directory, path, flags $(, $argument)*)
            }
        }
    )*};
}

open_in_directory! {
    openat(mode: mode_t);
    openat64(mode: mode_t);
    __openat_2();
    __openat64_2();
}

/// Declares functions that open a stream.
macro_rules! open_stream {
    ($($name:ident)*) => {$(
        /// See fopen(3).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            let meant = target(AT_FDCWD, path);
            let path = match &meant {
                // SAFETY: the mode is what the program gave.
                PathTarget::Node => return unsafe { node_stream(mode) },
                PathTarget::Shadow(shadow) => shadow.as_ptr(),
                // Of no use as a stream.
                PathTarget::SwSync | PathTarget::Other => path,
            };
            // SAFETY: the function of that name, with what the program gave it
            // or the C string of a path of ours.
            unsafe { next!($name: fn(*const c_char, *const c_char) -> *mut FILE; path, mode) }
        }
    )*};
}

open_stream! { fopen fopen64 }

/// The node as a stream: of no use, but what the kernel allows.
///
/// # Safety
/// `mode` is one of fopen(3).
unsafe fn node_stream(mode: *const c_char) -> *mut FILE {
    let descriptor = open_node(libc::O_RDWR);
    if descriptor < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: a descriptor just made, and the program's mode.
    let stream = unsafe { libc::fdopen(descriptor, mode) };
    if stream.is_null() {
        // SAFETY: nobody else knows of it.
        unsafe { libc::close(descriptor) };
    }
    stream
}
