// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server serves.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use npu_capture::BoBytes;
use npu_model::driver::Caller;
pub(crate) use npu_wire::is_call;
use rocket_uapi::{FenceStatus, sys};
use rustix::io::Errno;
use rustix::mm::MapFlags;

/// A device that can be opened many times.
pub trait Service: fmt::Debug + Send + Sync {
    /// Opens it.
    ///
    /// # Errors
    /// What open(2) then says.
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno>;

    /// Opens the kernel's file of fences that a program signals itself,
    /// where this system's own is not the one to open.
    ///
    /// # Errors
    /// What open(2) then says.
    fn open_sw_sync(&self) -> Result<OwnedFd, Errno>;

    /// An ioctl of a file that is not the device's: of a dma-buf, a sync_file
    /// or a timeline of its. `Ok(None)` if `file` is none.
    ///
    /// # Errors
    /// What ioctl(2) then says.
    fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        number: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<Option<i32>, Errno>;

    /// Called now and then: lets go of what nobody uses any more.
    fn collect(&self);

    /// Whether this system lacks the device, so that clients must be shown
    /// elsewhere what a system with one tells of it.
    fn is_emulated(&self) -> bool;
}

/// An open file of the device.
pub trait OpenFile: fmt::Debug + Send + Sync {
    /// An ioctl. `arg` is the argument; empty if the client could not read it.
    ///
    /// # Errors
    /// What ioctl(2) then says.
    fn ioctl(&self, number: u32, arg: &mut [u8], caller: &dyn Caller) -> Result<i32, Errno>;

    /// What the client has to map to get its mapping.
    ///
    /// # Errors
    /// What mmap(2) then says.
    fn mmap(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno>;

    /// The bytes of the buffer object that is mapped at `offset`, as the CPU
    /// sees them.
    ///
    /// # Errors
    /// What mmap(2) then says.
    fn contents(&self, offset: u64, len: usize) -> Result<Box<dyn BoBytes>, Errno>;

    /// The state of the jobs that write a buffer object, or wrote it last.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle.
    fn write_fence(&self, handle: u32) -> Result<FenceStatus, Errno>;

    /// Bytes of the buffer object behind a handle, by whole pages; `None` for an
    /// unknown one.
    fn bo_bytes(&self, handle: u32) -> Option<u64>;

    /// Whether something of it is mapped, which keeps it open.
    fn is_mapped(&self) -> bool;

    /// The last descriptor is closed, and the last mapping gone: releases the
    /// file, which waits for its queue. `is_ending` tells whether its process is
    /// at its end, or has come to it meanwhile. Calls `died`, once, if that was in
    /// the middle of a job: as soon as it is known, for the queue may take long.
    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn());
}

/// What to map in the place of the device.
#[derive(Debug)]
pub struct MapOf {
    /// The file.
    pub file: OwnedFd,
    /// Where in it, bytes.
    pub offset: u64,
}

/// Bytes of a buffer object's page.
pub(crate) const PAGE: u64 = npu_capture::format::PAGE;

/// Whether a request gives a handle, or takes one back. Who keeps book of
/// handles has to let one of these pass at a time: a number that one thread
/// gives back is at once another one's.
pub(crate) fn changes_handles(request: u32) -> bool {
    [
        sys::CREATE_BO,
        sys::GEM_CLOSE,
        sys::PRIME_FD_TO_HANDLE,
        sys::GEM_OPEN,
    ]
    .iter()
    .any(|&known| is_call(request, known))
}
