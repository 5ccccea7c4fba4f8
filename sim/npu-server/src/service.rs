// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device that a server shows to its clients, and its open files.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use npu_capture::RecordedFile;
use rocket_uapi::{Caller, FileLayer, FileOperations};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::channel::Channel;

/// A device that can be opened many times.
pub trait Service: fmt::Debug + Send + Sync {
    /// Opens the device for a client.
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

    /// mmap of a file that is not the device's: whether a dma-buf of its may be
    /// mapped so, from its start. `Ok(None)` if `file` is none, or if the kernel
    /// judges it itself.
    ///
    /// # Errors
    /// What mmap(2) then says.
    fn file_mmap(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Option<()>, Errno>;

    /// Called now and then: lets go of what nobody uses any more.
    fn collect(&self);

    /// Whether this system lacks the device, so that clients must be shown
    /// elsewhere what a system with one tells of it.
    fn is_emulated(&self) -> bool;
}

/// An open file of the device, for clients in other processes.
pub trait OpenFile: FileOperations {
    /// What a client has to map to get its mapping.
    ///
    /// # Errors
    /// What mmap(2) then says.
    fn client_map(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno>;

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

impl OpenFile for RecordedFile<Box<dyn OpenFile>> {
    fn client_map(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno> {
        self.below().client_map(offset, len, flags)
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.below().bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.below().is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        self.into_inner().close(is_ending, died);
    }
}

/// Puts a layer in front of an open file.
pub(crate) type AddLayer = dyn Fn(Box<dyn OpenFile>) -> Box<dyn OpenFile> + Send + Sync;

/// An ioctl for a client.
#[allow(unsafe_code)]
pub(crate) fn ioctl_for(
    file: &dyn OpenFile,
    request: u32,
    arg: &mut [u8],
    client: &Channel,
) -> Result<i32, Errno> {
    // SAFETY: the client is another process: what it names is memory of its own,
    // which it is asked for. What its jobs write is in objects of its file, of
    // which this process has no references.
    unsafe { file.ioctl(request, arg, client) }
}

/// What to map in the place of the device.
#[derive(Debug)]
pub struct MapOf {
    /// The file to map.
    pub file: OwnedFd,
    /// Offset of the mapping in it, bytes.
    pub offset: u64,
}
