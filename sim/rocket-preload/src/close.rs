// SPDX-License-Identifier: MIT OR Apache-2.0
//! close of the device: it returns when the file is released, like the kernel's close,
//! which waits for the file's queue.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::c_int;
use npu_wire::{Frame, FrameKind, RequestKind};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::call::begin;
use crate::device;
use crate::guard::look;
use crate::next::hook;
use crate::target::is_device;
use crate::wire::{self, ClientMemory};

hook! {
    // See close(2).
    fn(fd: c_int) -> c_int, |next| {
        let release = look(None, || announce(fd));
        let result = next(fd);
        if let Some(release) = release {
            look((), || wait(&release));
        }
        result
    }
    close(..);
}

/// Announces the close to the server, if `fd` is of the device. The server ends the call
/// when nothing is left to wait for. A program without free descriptors does not wait.
fn announce(fd: c_int) -> Option<OwnedFd> {
    if !is_device(fd) {
        return None;
    }
    // SAFETY: a moment ago it was the device. If another thread closes it now, the kernel
    // returns an error.
    let connection = unsafe { BorrowedFd::borrow_raw(fd) };
    begin(
        connection,
        &device::request(RequestKind::Close),
        ClientMemory::NONE,
        None,
    )
    .ok()
}

/// Waits for the end of the call, with any result: the descriptor is already closed. Only a
/// signal that ends the process ends the wait.
fn wait(channel: &OwnedFd) {
    let closed = Frame::new(FrameKind::Answer);
    if npu_wire::send(channel, [closed.as_bytes(), &[]], &[]).is_ok() {
        let mut head = [0; size_of::<Frame>()];
        while wire::peek(channel.as_fd(), &mut head) == Err(Errno::INTR) {}
    }
}
