// SPDX-License-Identifier: MIT OR Apache-2.0
//! The edge to C: no panic crosses it, and `errno` says what it should.

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::c_int;
use rustix::io::Errno;

/// `errno` of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library gives each thread a valid place for it.
    unsafe { place.read() }
}

/// Sets `errno` of this thread.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library gives each thread a valid place for it.
    unsafe { place.write(value) }
}

/// Looks at a call without leaving traces in `errno`. `default` stands in if
/// this code itself fails.
pub(crate) fn look<T>(default: T, look: impl FnOnce() -> T) -> T {
    let before = errno();
    let seen = catch_unwind(AssertUnwindSafe(look)).unwrap_or(default);
    set_errno(before);
    seen
}

/// Does a call, as C does it: -1 and `errno` for an error.
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
