// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timelines that a client advances, by the file /sys/kernel/debug/sync/sw_sync
//! (Linux, drivers/dma-buf/sw_sync.c). It is the kernel's tool to test waits
//! for fences: a job that waits for such a fence is held as long as the client
//! likes.
//!
//! The client's descriptor is one end of a socket pair, like that of a
//! sync_file. When its last copy is closed, the remaining fences fail.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rocket_uapi::{Caller, sys};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::base::lock::lock;
use crate::files::shared_file::{self, SharedFile, SharedFileKind, copy_in, copy_out, has_hung_up};
use crate::files::sync_file::ModelSyncFile;
use crate::objects::fence::{Fence, Maker, new_contexts};
use crate::objects::resv::Exported;

/// A timeline: a number that only grows, and the fences that wait for it.
#[derive(Debug)]
struct SwSync {
    context: u64,
    state: Mutex<State>,
    /// The model's end of the socket pair.
    socket: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    value: u32,
    /// Fences whose number the timeline has not reached.
    fences: Vec<Arc<Fence>>,
    closed: bool,
}

/// Whether fence number `seqno` still waits at `value`. Numbers wrap
/// (`__dma_fence_is_later`).
fn is_later(seqno: u64, value: u32) -> bool {
    (seqno as u32).wrapping_sub(value).cast_signed() > 0
}

impl SwSync {
    /// Sleeps until the file is closed, then fails the remaining fences.
    fn end_with_its_file(&self) {
        while self.is_open() {
            let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
            // The next `is_open` shows whether an error matters.
            let _ = rustix::event::poll(&mut fds, None);
        }
        let fences = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.fences)
        };
        for fence in fences {
            fence.signal(Err(Errno::NOENT));
        }
    }

    /// A fence that is signalled when the timeline reaches `value`.
    fn fence_at(&self, value: u32) -> Arc<Fence> {
        let fence = Arc::new(Fence::new(Maker::Client, self.context, value.into()));
        let mut state = lock(&self.state);
        if !is_later(value.into(), state.value) {
            fence.signal(Ok(()));
        } else if state.closed {
            fence.signal(Err(Errno::NOENT));
        } else {
            state.fences.push(Arc::clone(&fence));
        }
        fence
    }

    fn advance(&self, by: u32) {
        let mut state = lock(&self.state);
        let mut left = by;
        let mut reached = Vec::new();
        // Advance in steps in which no number is passed twice.
        loop {
            let step = left.min(i32::MAX.unsigned_abs());
            state.value = state.value.wrapping_add(step);
            let value = state.value;
            reached.extend(
                state
                    .fences
                    .extract_if(.., |fence| !is_later(fence.seqno(), value)),
            );
            left -= step;
            if left == 0 {
                break;
            }
        }
        drop(state);
        for fence in reached {
            fence.signal(Ok(()));
        }
    }
}

impl SharedFile {
    /// Opens /sys/kernel/debug/sync/sw_sync: a timeline whose fences the client
    /// signals (SW_SYNC_IOC_CREATE_FENCE, _INC).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`; `EAGAIN` if the host gives no thread.
    pub fn open_sw_sync() -> Result<OwnedFd, Errno> {
        let make = |socket| {
            let file = Arc::new(SwSync {
                context: new_contexts(1),
                state: Mutex::default(),
                socket,
            });
            let watched = Arc::clone(&file);
            std::thread::Builder::new()
                .name("npu-sw-sync".to_owned())
                .spawn(move || watched.end_with_its_file())
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
            Ok(file)
        };
        let (_, client) = shared_file::with_socket(make)?;
        Ok(client)
    }
}

impl SharedFileKind for SwSync {
    /// Whether the client's end is open anywhere.
    fn is_open(&self) -> bool {
        !has_hung_up(&self.socket)
    }

    fn ioctl(&self, request: u32, arg: u64, user: &dyn Caller) -> Result<i32, Errno> {
        match request {
            sys::SW_SYNC_CREATE_FENCE => {
                let mut argument: sys::SwSyncCreateFence = copy_in(user, arg)?;
                let exported = Exported {
                    fences: vec![self.fence_at(argument.value)],
                    ..Exported::default()
                };
                let fence = ModelSyncFile::create(exported, Vec::new())?;
                user.install(fence, true, &mut |number| {
                    argument.fence = number;
                    copy_out(user, arg, &argument)
                })?;
            }
            sys::SW_SYNC_INC => self.advance(copy_in(user, arg)?),
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        assert!(is_later(1, 0) && !is_later(0, 0) && !is_later(0, 1));
        assert!(is_later(2, u32::MAX) && !is_later(u64::from(u32::MAX), 2));
    }
}
