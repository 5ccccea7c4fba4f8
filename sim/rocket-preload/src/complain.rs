// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for whoever runs the program.

use std::os::fd::BorrowedFd;

/// Says why the device is not there, on standard error: the program will only
/// say that it is not.
pub(crate) fn complain(why: &[u8]) {
    let parts = [b"librocket_preload.so: ".as_slice(), why, b"\n"];
    let parts = parts.map(std::io::IoSlice::new);
    // SAFETY: it is the program's, which has it as long as it likes; if it is
    // closed the kernel says so.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let _ = rustix::io::writev(stderr, &parts);
}
