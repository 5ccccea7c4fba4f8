// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device that a server shows to its clients, and its open files.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use npu_capture::RecordedFile;
use rocket_uapi::{Caller, FileLayer, FileOperations, MapRequest};
use rustix::io::Errno;

use crate::channel::Channel;

/// A device that can be opened many times.
pub trait Service: fmt::Debug + Send + Sync {
    /// Opens the device for a client.
    ///
    /// # Errors
    /// The errno of open(2) for the client.
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno>;

    /// Opens the kernel's file of fences that a program signals itself. By default the
    /// client opens that of its system.
    ///
    /// # Errors
    /// The errno of open(2) for the client.
    fn open_sw_sync(&self) -> Result<OwnedFd, Errno> {
        Err(Errno::NOENT)
    }

    /// An ioctl of a dma-buf, a sync_file or a timeline of the device. `Ok(None)` if `file`
    /// is another one; by default all files are the kernel's, which the client has.
    ///
    /// # Errors
    /// The errno of ioctl(2) for the client.
    fn file_ioctl(
        &self,
        _file: BorrowedFd<'_>,
        _number: u32,
        _arg: u64,
        _caller: &dyn Caller,
    ) -> Result<Option<i32>, Errno> {
        Ok(None)
    }

    /// Checks whether a dma-buf of the device may be mapped so, from its start. `Ok(None)` if
    /// `file` is another one, as by default.
    ///
    /// # Errors
    /// The errno of mmap(2) for the client.
    fn file_mmap(&self, _file: BorrowedFd<'_>, _request: &MapRequest) -> Result<Option<()>, Errno> {
        Ok(None)
    }

    /// Releases what nobody uses any more. Called now and then.
    fn collect(&self) {}

    /// Whether this system lacks the device, so that clients must be shown
    /// elsewhere what a system with one has in its directories.
    fn is_emulated(&self) -> bool;
}

/// An open file of the device, for clients in other processes.
pub trait OpenFile: FileOperations {
    /// The file that a client has to map to get its mapping.
    ///
    /// # Errors
    /// The errno of mmap(2) for the client.
    fn client_map(&self, request: &MapRequest) -> Result<MapOf, Errno>;

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
    fn client_map(&self, request: &MapRequest) -> Result<MapOf, Errno> {
        self.below().client_map(request)
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
