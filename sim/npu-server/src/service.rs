// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device that a server shows to its clients, and its open files.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use npu_capture::RecordedFile;
use rocket_uapi::{Caller, FileLayer, FileOperations, MapRequest};
use rustix::io::Errno;

use crate::channel::Channel;

/// A device that can be opened many times: the software [`Model`](npu_model::Model), or a
/// node with [`ForwardService`](crate::ForwardService).
pub trait Service: fmt::Debug + Send + Sync {
    /// Opens the device for a client.
    ///
    /// # Errors
    /// The errno of open(2) for the client.
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno>;

    /// Opens sw_sync, the kernel's file of fences that a program signals itself. By default
    /// the client opens that of its system.
    ///
    /// # Errors
    /// The errno of open(2) for the client.
    fn open_sw_sync(&self) -> Result<OwnedFd, Errno> {
        Err(Errno::NOENT)
    }

    /// An ioctl of a dma-buf, a sync_file or a timeline of the device. `Ok(None)` if `file`
    /// is another one. That is the default: all files are then the kernel's, and the client
    /// has them.
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

    /// Checks whether a dma-buf of the device may be mapped like this, from its start.
    /// `Ok(None)` if `file` is another one, and by default.
    ///
    /// # Errors
    /// The errno of mmap(2) for the client.
    fn file_mmap(&self, _file: BorrowedFd<'_>, _request: &MapRequest) -> Result<Option<()>, Errno> {
        Ok(None)
    }

    /// Releases what is not used any more. Called now and then.
    fn collect(&self) {}

    /// Whether this system lacks the device. Clients then need another directory with the
    /// files by which a system describes it.
    fn is_emulated(&self) -> bool;
}

/// An open file of the device, for clients in other processes.
pub trait OpenFile: FileOperations {
    /// The file that a client has to map for this request, and the offset of the mapping
    /// in it, bytes.
    ///
    /// # Errors
    /// The errno of mmap(2) for the client.
    fn client_map(&self, request: &MapRequest) -> Result<(OwnedFd, u64), Errno>;

    /// Bytes of the buffer object behind a handle, in whole pages; `None` for an unknown
    /// handle.
    fn bo_bytes(&self, handle: u32) -> Option<u64>;

    /// Whether something of it is mapped, which keeps it open.
    fn is_mapped(&self) -> bool;

    /// Releases the file after its last descriptor and its last mapping are gone. This waits
    /// for its queue. `is_ending` returns whether its process is ending or has ended. If that
    /// was in the middle of a job, this calls `died` once, as soon as it is known, since the
    /// queue may take long.
    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn());
}

impl OpenFile for RecordedFile<Box<dyn OpenFile>> {
    fn client_map(&self, request: &MapRequest) -> Result<(OwnedFd, u64), Errno> {
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

#[allow(unsafe_code)]
pub(crate) fn ioctl_for(
    file: &dyn OpenFile,
    request: u32,
    arg: &mut [u8],
    client: &Channel,
) -> Result<i32, Errno> {
    // SAFETY: the client is another process. The memory that it names is its own, and is read
    // and written through it. Its jobs write to objects of its file, to which this process
    // has no references.
    unsafe { file.ioctl(request, arg, client) }
}
