// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain ioctls on dma-bufs, sync_files and timelines.

use std::os::fd::{AsRawFd, OwnedFd};

use npu_model::driver::{Arena, Caller, SharedFile};
use rocket_uapi::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::client::new_fd;

/// The model's file behind a descriptor.
pub fn shared(fd: &OwnedFd) -> SharedFile {
    SharedFile::of(fd.as_raw_fd()).unwrap().unwrap()
}

/// An ioctl on a dma-buf, a sync_file or a timeline.
pub fn ask<T>(fd: &OwnedFd, request: u32, mut arg: T) -> Result<T, Errno>
where
    T: FromBytes + IntoBytes + Immutable,
{
    let arena = Arena::new();
    let at = arena.push(arg.as_bytes());
    shared(fd).ioctl(request, at, &arena)?;
    arena.read(at, arg.as_mut_bytes()).unwrap();
    Ok(arg)
}

/// Whether the host's poll finds the descriptor readable. Checks that the model
/// agrees. The host may be a moment later, so this waits for it if the model finds
/// the descriptor readable, or if `waits`.
pub fn readable(fd: &OwnedFd, waits: bool) -> bool {
    let is_ready = || shared(fd).poll(PollFlags::IN) == PollFlags::IN;
    let timeout = Some(Timespec::default()).filter(|_| !waits && !is_ready());
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, timeout.as_ref()).unwrap();
    let readable = fds[0].revents() == PollFlags::IN;
    assert!(is_ready() || !readable);
    readable
}

/// The flag of a reader's or a writer's access.
fn access(writes: bool) -> u32 {
    1 + u32::from(writes)
}

/// Exports the fence that an access waits for.
pub fn export_fence(dma_buf: &OwnedFd, writes: bool) -> OwnedFd {
    let asked = ask(dma_buf, sys::EXPORT_SYNC_FILE, [access(writes), 0]);
    new_fd(asked.unwrap()[1])
}

pub fn import_fence(dma_buf: &OwnedFd, writes: bool, fence: &OwnedFd) {
    let arg = [access(writes), fence.as_raw_fd().cast_unsigned()];
    ask(dma_buf, sys::IMPORT_SYNC_FILE, arg).unwrap();
}

pub fn merge(a: &OwnedFd, b: &OwnedFd) -> Result<OwnedFd, Errno> {
    let arg = sys::SyncMergeData {
        fd2: b.as_raw_fd(),
        ..sys::SyncMergeData::default()
    };
    Ok(new_fd(ask(a, sys::SYNC_MERGE, arg)?.fence.cast_unsigned()))
}

/// The status of all fences as one.
pub fn status(fence: &OwnedFd) -> i32 {
    let info = ask(fence, sys::SYNC_FILE_INFO, sys::SyncFileInfo::default());
    info.unwrap().status
}

/// A fence that is signalled when the timeline reaches `value`.
pub fn fence_at(timeline: &OwnedFd, value: u32) -> OwnedFd {
    // The name is empty.
    let mut arg = [0; 10];
    arg[0] = value;
    new_fd(ask(timeline, sys::SW_SYNC_CREATE_FENCE, arg).unwrap()[9])
}
