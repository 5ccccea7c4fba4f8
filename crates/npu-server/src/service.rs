// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server serves.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use npu_model::driver::Caller;
use rocket_uapi::FenceStatus;
use rustix::io::Errno;
use rustix::mm::MapFlags;

/// A device that can be opened many times.
pub trait Service: fmt::Debug + Send + Sync {
    /// Opens it.
    ///
    /// # Errors
    /// What open(2) then says.
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno>;

    /// An ioctl of a file that is not the device's: of a dma-buf or a
    /// sync_file of its. `Ok(None)` if `file` is neither.
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

    /// The state of the jobs that write a buffer object, or wrote it last.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle.
    fn write_fence(&self, handle: u32) -> Result<FenceStatus, Errno>;

    /// The last descriptor is closed; `dying` if by the end of its process.
    fn close(self: Box<Self>, dying: bool);
}

/// What to map in the place of the device.
#[derive(Debug)]
pub struct MapOf {
    /// The file.
    pub file: OwnedFd,
    /// Where in it, bytes.
    pub offset: u64,
}
