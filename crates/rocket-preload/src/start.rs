// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting a server where the program was told of none.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

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

/// Starts a server for this user, or waits for one that somebody else starts.
///
/// # Errors
/// `ENODEV` if there is no program to start.
pub(crate) fn server() -> Result<(), Errno> {
    complain(b"no server: start the program by `npu-probe run`");
    Err(Errno::NODEV)
}
