// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one interface to a driver: an open file of a DRM device, by its system calls.
//!
//! An ioctl is a request number and the bytes of its argument, so that a driver's
//! next ioctl passes without a word of it here. Below are a node of the kernel
//! ([`crate::Node`]) and the model; above are the typed calls
//! ([`crate::RocketFile`]), a recorder, and a server for other processes.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};

use crate::caller::Caller;
use crate::error::Error;
use crate::mapped::MappedMemory;
use crate::{Errno, sys};

/// A device and its driver, as they describe themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The node's path, or what stands in for it.
    pub name: String,
    /// The DRM driver's name.
    pub driver: String,
    /// The DRM driver's version: major, minor, patch level.
    pub version: (i32, i32, i32),
    /// The DRM driver's description.
    pub description: String,
    /// Whether this is software.
    pub is_model: bool,
    /// NPU cores; the mainline uAPI has no call for it, so for a kernel device this
    /// is what the chip has.
    pub cores: u32,
}

/// The arguments of mmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// Where in the file, bytes.
    pub offset: u64,
    /// Bytes to map.
    pub len: usize,
    /// What the mapping allows.
    pub prot: ProtFlags,
    /// Shared or private, and where.
    pub flags: MapFlags,
}

impl MapRequest {
    /// A shared mapping of `len` bytes from `offset` on, to be read and written.
    #[must_use]
    pub const fn shared(offset: u64, len: usize) -> Self {
        Self {
            offset,
            len,
            prot: ProtFlags::READ.union(ProtFlags::WRITE),
            flags: MapFlags::SHARED,
        }
    }

    /// The same for reading alone.
    #[must_use]
    pub const fn read_only(self) -> Self {
        Self {
            prot: ProtFlags::READ,
            ..self
        }
    }
}

/// An open file of a device. Dropping it closes it.
///
/// # Safety
/// Memory is lent to Rust on the word of this, so it is kept: the handle of each
/// open BO is unique in the file; the address that CREATE_BO gives is where the
/// NPU sees exactly the pages that mmap at the offset shows, which are zeroes at
/// first; when PREP_BO returns success no submitted job that lists the BO as
/// written is still running. A descriptor
/// that an ioctl gives this process is open, and nobody else's.
pub unsafe trait FileOperations: fmt::Debug + Send + Sync {
    /// The device and its driver.
    fn info(&self) -> DeviceInfo;

    /// How long after the last job's end the file may be closed. Kernels of
    /// today drop a finished job's BO references a little later, into freed
    /// memory if the file is gone (a use after free in `rocket_gem.c`).
    fn settle(&self) -> Duration;

    /// An ioctl. `arg` is the memory that the argument points to; an empty one
    /// stands for a null pointer. `caller` is the process that calls: addresses
    /// in `arg` and behind it are of its memory, descriptors are its own.
    ///
    /// # Errors
    /// The errno of the driver, EINTR included.
    ///
    /// # Safety
    /// Where the caller is this process: addresses inside `arg`, and inside what
    /// they lead to, must be ones that the driver may read or write as the ioctl
    /// defines, or invalid. What SUBMIT makes the NPU do is subject to
    /// [`crate::RocketFile::submit`].
    unsafe fn ioctl(&self, request: u32, arg: &mut [u8], caller: &dyn Caller)
    -> Result<i32, Errno>;

    /// mmap.
    ///
    /// # Errors
    /// The errno of the driver.
    fn mmap(&self, request: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno>;

    /// The pages of a new BO, `len` bytes, to be read and written. It may be a
    /// mapping that others have too.
    ///
    /// # Errors
    /// As [`FileOperations::mmap`].
    fn map_bo(&self, bo: &sys::CreateBo, len: usize) -> Result<Box<dyn MappedMemory>, Errno> {
        self.mmap(&MapRequest::shared(bo.offset, len))
    }

    /// poll without waiting: the events that are ready.
    ///
    /// # Errors
    /// The errno of the kernel.
    fn poll(&self) -> Result<i16, Errno>;

    /// A non-blocking read.
    ///
    /// # Errors
    /// The errno of the driver.
    fn read(&self, into: &mut [u8]) -> Result<usize, Errno>;

    /// Opens the same device once more.
    ///
    /// # Errors
    /// As opening it the first time.
    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error>;

    /// What dma-bufs and sync_files of the device answer.
    fn shared_files(&self) -> Arc<dyn SharedFileOperations>;

    /// Whether the driver is known to have taken a job that lists the BO as
    /// written. Asked once, right after SUBMIT, when all earlier jobs that list
    /// it have ended. Where it is not, the job may have ended already, or there
    /// may never have been one.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle.
    fn was_accepted(&self, handle: u32) -> Result<bool, Errno>;

    /// Whether the driver killed the job that last listed the BO as written: one
    /// that it got after `since`, and that has ended. `None` where that is not
    /// known. It says `Some(false)` of a job that it dropped.
    fn was_killed(&self, handle: u32, since: Instant) -> Option<bool>;
}

/// What the files of dma-bufs and sync_files answer, found by their descriptors
/// in this process.
///
/// # Safety
/// As for [`FileOperations`].
pub unsafe trait SharedFileOperations: fmt::Debug + Send + Sync {
    /// An ioctl. `arg` is the argument as given, mostly an address of `caller`'s.
    ///
    /// # Errors
    /// The errno of the kernel, EINTR included.
    ///
    /// # Safety
    /// As for [`FileOperations::ioctl`]; `arg` is such an address itself, of
    /// as many bytes as the request number says, where the ioctl takes one.
    unsafe fn ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<i32, Errno>;

    /// lseek.
    ///
    /// # Errors
    /// The errno of the kernel.
    fn seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno>;

    /// mmap.
    ///
    /// # Errors
    /// The errno of the kernel.
    fn mmap(
        &self,
        file: BorrowedFd<'_>,
        request: &MapRequest,
    ) -> Result<Box<dyn MappedMemory>, Errno>;
}
