// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for the user who runs the program.

use std::os::fd::BorrowedFd;

/// Prints on standard error why the device is missing: the program only reports that it is.
pub(crate) fn complain(why: &[u8]) {
    let parts = [b"librocket_preload.so: ".as_slice(), why, b"\n"];
    let parts = parts.map(std::io::IoSlice::new);
    // SAFETY: the descriptor belongs to the program; if it is closed, the kernel returns an
    // error.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let _ = rustix::io::writev(stderr, &parts);
}
