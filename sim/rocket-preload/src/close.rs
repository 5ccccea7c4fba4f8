// SPDX-License-Identifier: MIT OR Apache-2.0
//! close of the device: it returns when the file is released, as the kernel's,
//! which waits for the file's queue.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::c_int;
use npu_wire::{Ask, Frame, FrameKind};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::call::begin;
use crate::device;
use crate::guard::look;
use crate::next::next;
use crate::target::is_device;
use crate::wire::{self, ClientMemory};

/// See close(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let release = look(None, || announce(fd));
    // SAFETY: as the program called it.
    let result = unsafe { next!(close: fn(c_int) -> c_int; fd) };
    if let Some(release) = release {
        look((), || wait(&release));
    }
    result
}

/// Tells the server, if it is the device that is to be closed. The server ends
/// the call when there is nothing more to wait for. A program without
/// descriptors for a call does not wait.
fn announce(fd: c_int) -> Option<OwnedFd> {
    if !is_device(fd) {
        return None;
    }
    // SAFETY: a moment ago it was the device. If another thread closes it now
    // the kernel says so.
    let connection = unsafe { BorrowedFd::borrow_raw(fd) };
    begin(
        connection,
        &device::request(Ask::Close),
        ClientMemory::NONE,
        None,
    )
    .ok()
}

/// Waits for the end of the call, whatever it is: the descriptor is closed. No
/// signal but the one that ends the process ends the wait.
fn wait(channel: &OwnedFd) {
    let closed = Frame::new(FrameKind::Answer);
    if npu_wire::send(channel, [closed.as_bytes(), &[]], &[]).is_ok() {
        let mut head = [0; size_of::<Frame>()];
        while wire::peek(channel.as_fd(), &mut head) == Err(Errno::INTR) {}
    }
}
