// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface to a driver: the system calls on an open file of a DRM device.
//!
//! An ioctl is a request number and the bytes of its argument, so a new ioctl of the driver
//! passes without a change here. Below this interface are a node of the kernel
//! ([`crate::Node`]) and the model. Above it are [`crate::Device`], a recorder, and a server
//! for other processes.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};

use crate::caller::Caller;
use crate::error::Error;
use crate::{Errno, sys};

/// Description of a device and its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The node's path, or a name of the model.
    pub name: String,
    /// The DRM driver: its answer to VERSION.
    pub driver: drm::Driver,
    /// Whether this is the software model.
    pub is_model: bool,
    /// Number of NPU cores. The mainline uAPI has no call for it, so it is the
    /// number of cores that sysfs lists, or the chip's if sysfs cannot be read.
    pub cores: u32,
}

impl DeviceInfo {
    /// Files to open so that all cores work at the same time: one for each, at least one. The
    /// kernel runs the jobs of one file one after another.
    #[must_use]
    pub fn files(&self) -> usize {
        usize::try_from(self.cores).unwrap_or(1).max(1)
    }
}

/// The arguments of mmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Bytes to map.
    pub len: usize,
    /// Protection of the mapping.
    pub prot: ProtFlags,
    /// Flags: shared or private, and placement.
    pub flags: MapFlags,
}

impl MapRequest {
    /// A readable and writable shared mapping of `len` bytes from `offset` on.
    #[must_use]
    pub const fn shared(offset: u64, len: usize) -> Self {
        Self {
            offset,
            len,
            prot: ProtFlags::READ.union(ProtFlags::WRITE),
            flags: MapFlags::SHARED,
        }
    }

    /// The same mapping, read-only.
    #[must_use]
    pub const fn read_only(self) -> Self {
        Self {
            prot: ProtFlags::READ,
            ..self
        }
    }
}

/// A CPU mapping. Dropping it unmaps the memory.
///
/// # Safety
/// `as_ptr` returns the start of a page. From there `len` bytes are mapped, with the
/// requested protection, until the value is dropped. They are initialised and do not move.
#[allow(clippy::len_without_is_empty, reason = "it is never empty")]
pub unsafe trait MappedMemory: fmt::Debug + Send + Sync {
    /// Address of the first byte.
    fn as_ptr(&self) -> *mut u8;

    /// Length in bytes.
    fn len(&self) -> usize;

    /// All whole words of the mapping; others may change them at any time. An access that
    /// the protection forbids ends the process with a signal.
    fn words(&self) -> &[AtomicU64] {
        let count = self.len() / size_of::<AtomicU64>();
        // SAFETY: the words are initialised and aligned to a page. They live as long as the
        // mapping, which outlives the borrow of `self`. Others may change them, which
        // atomics allow. No plain slice of the bytes exists meanwhile: only the guards of
        // `access` make one, from a `Bo` that they borrow. This function is called only for
        // a `DmaBuf`. A `DmaBuf` owns the `Bo` that it exported and lends it to no guard;
        // an imported one has no `Bo`.
        unsafe { slice::from_raw_parts(self.as_ptr().cast(), count) }
    }
}

/// An open file of a device. Dropping it closes the file.
///
/// # Safety
/// Rust slices of device memory depend on these promises. The handle of each open BO is
/// unique in the file. The address that CREATE_BO returns is where the NPU sees exactly the
/// pages that mmap at the returned offset shows; those pages are zero at first. When
/// PREP_BO returns success, no submitted job that lists the BO as written still runs. A
/// descriptor that an ioctl returns to this process is open and has no other owner.
pub unsafe trait FileOperations: fmt::Debug + Send + Sync {
    /// The device and its driver.
    fn info(&self) -> DeviceInfo;

    /// Shortest time between the last job's end and closing the file. Current kernels drop
    /// a finished job's BO references a little late, into freed memory if the file is gone
    /// (a use after free in `rocket_gem.c`).
    fn settle(&self) -> Duration;

    /// Makes an ioctl. `arg` is the memory that the argument points to; an empty slice
    /// stands for a null pointer. `caller` is the process that calls: addresses in `arg`
    /// and behind it refer to its memory, descriptors to its table.
    ///
    /// # Errors
    /// The errno of the driver, EINTR included.
    ///
    /// # Safety
    /// If the caller is this process, each address in `arg`, and in the memory behind it,
    /// is either invalid or one that the driver may read or write as the ioctl defines.
    /// GEM_CLOSE closes no handle of a live [`crate::Bo`] or [`crate::DmaBuf`].
    ///
    /// After SUBMIT the NPU reads and writes any address in the command words. Until the
    /// jobs have ended: all that a program makes the NPU write lies in BOs of this file that
    /// this process accesses by atomics at most; all that it makes the NPU read lies in BOs
    /// that stay alive, and that this process changes by atomics at most.
    unsafe fn ioctl(&self, request: u32, arg: &mut [u8], caller: &dyn Caller)
    -> Result<i32, Errno>;

    /// mmap.
    ///
    /// # Errors
    /// The errno of the driver.
    fn mmap(&self, request: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno>;

    /// Maps the pages of a new BO, `len` bytes, readable and writable. The mapping may be
    /// shared with other holders.
    ///
    /// # Errors
    /// As [`FileOperations::mmap`].
    fn map_bo(&self, bo: &sys::CreateBo, len: usize) -> Result<Box<dyn MappedMemory>, Errno> {
        self.mmap(&MapRequest::shared(bo.offset, len))
    }

    /// poll without waiting; returns the events that are ready.
    ///
    /// # Errors
    /// The errno of the kernel.
    fn poll(&self) -> Result<i16, Errno>;

    /// A non-blocking read.
    ///
    /// # Errors
    /// The errno of the driver.
    fn read(&self, into: &mut [u8]) -> Result<usize, Errno>;

    /// Opens the same device again.
    ///
    /// # Errors
    /// Those of the first open.
    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error>;

    /// The system calls on the device's dma-bufs and sync_files.
    fn shared_files(&self) -> Arc<dyn SharedFileOperations>;

    /// Whether the driver is known to have accepted a job that lists the BO as written.
    /// Call it once, right after SUBMIT, when all earlier jobs that list the BO have ended.
    /// `false` means that the job has ended already, or was dropped.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle.
    fn was_accepted(&self, handle: u32) -> Result<bool, Errno>;

    /// Whether the driver killed the last job that lists the BO as written. The driver got
    /// that job after `since`, and the job has ended. `None` if that is unknown;
    /// `Some(false)` for a job that the driver dropped.
    fn was_killed(&self, handle: u32, since: Instant) -> Option<bool>;

    /// The modelled time for which the last job that lists the BO as written held its core. The
    /// job has ended. `None` where jobs take the time of the clock.
    fn core_time(&self, handle: u32) -> Option<Duration> {
        let _ = handle;
        None
    }
}

/// The system calls on dma-bufs and sync_files, which are named by their descriptors in
/// this process.
///
/// # Safety
/// As for [`FileOperations`].
pub unsafe trait SharedFileOperations: fmt::Debug + Send + Sync {
    /// Makes an ioctl. `arg` is the raw argument, usually an address in `caller`'s memory.
    ///
    /// # Errors
    /// The errno of the kernel, EINTR included.
    ///
    /// # Safety
    /// As for [`FileOperations::ioctl`]. If the ioctl takes an address, `arg` is such an
    /// address, of as many bytes as the request number states.
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
