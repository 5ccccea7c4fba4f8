// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boundary to C: no panic crosses it, and `errno` is as C expects.

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::c_int;
use rustix::io::Errno;

pub(crate) fn errno() -> c_int {
    // SAFETY: the call has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library gives each thread a valid place for it.
    unsafe { place.read() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the call has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library gives each thread a valid place for it.
    unsafe { place.write(value) }
}

/// Runs `look` without changing `errno`. Returns `default` if `look` panics.
pub(crate) fn look<T>(default: T, look: impl FnOnce() -> T) -> T {
    let before = errno();
    let seen = catch_unwind(AssertUnwindSafe(look)).unwrap_or(default);
    set_errno(before);
    seen
}

/// Runs `call`, and returns like C: -1 with `errno` for an error. A panic is EIO.
pub(crate) fn finish(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    let before = errno();
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::IO));
    match result {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(errno) => {
            set_errno(errno.raw_os_error());
            -1
        }
    }
}
