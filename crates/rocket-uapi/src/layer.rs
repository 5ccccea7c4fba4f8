// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files that wrap other open files.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::caller::Caller;
use crate::error::Error;
use crate::file::{DeviceInfo, FileOperations, MapRequest, MappedMemory, SharedFileOperations};
use crate::{Errno, sys};

/// An open file that wraps another: a recorder, a forwarder, a test's driver. It must
/// implement ioctls, may override the other methods of this trait, and forwards everything
/// else.
///
/// # Safety
/// As for [`FileOperations`]: it keeps those promises if the wrapped file does.
pub unsafe trait FileLayer: fmt::Debug + Send + Sync {
    /// Type of the wrapped file.
    type Below: FileOperations + ?Sized;

    /// The wrapped file.
    fn below(&self) -> &Self::Below;

    /// [`FileOperations::ioctl`].
    ///
    /// # Safety
    /// As for [`FileOperations::ioctl`].
    unsafe fn ioctl(&self, request: u32, arg: &mut [u8], caller: &dyn Caller)
    -> Result<i32, Errno>;

    /// [`FileOperations::info`].
    fn info(&self) -> DeviceInfo {
        self.below().info()
    }

    /// [`FileOperations::map_bo`].
    fn map_bo(&self, bo: &sys::CreateBo, len: usize) -> Result<Box<dyn MappedMemory>, Errno> {
        self.below().map_bo(bo, len)
    }

    /// [`FileOperations::reopen`].
    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        self.below().reopen()
    }

    /// [`FileOperations::was_accepted`].
    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        self.below().was_accepted(handle)
    }

    /// [`FileOperations::was_killed`].
    fn was_killed(&self, handle: u32, since: Instant) -> Option<bool> {
        self.below().was_killed(handle, since)
    }
}

// SAFETY: `FileLayer` promises it for its methods; the wrapped file promises the rest.
unsafe impl<L: FileLayer> FileOperations for L {
    fn info(&self) -> DeviceInfo {
        FileLayer::info(self)
    }

    fn settle(&self) -> Duration {
        self.below().settle()
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        // SAFETY: the caller promises it.
        unsafe { FileLayer::ioctl(self, request, arg, caller) }
    }

    fn mmap(&self, request: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno> {
        self.below().mmap(request)
    }

    fn map_bo(&self, bo: &sys::CreateBo, len: usize) -> Result<Box<dyn MappedMemory>, Errno> {
        FileLayer::map_bo(self, bo, len)
    }

    fn poll(&self) -> Result<i16, Errno> {
        self.below().poll()
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        self.below().read(into)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        FileLayer::reopen(self)
    }

    fn shared_files(&self) -> Arc<dyn SharedFileOperations> {
        self.below().shared_files()
    }

    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        FileLayer::was_accepted(self, handle)
    }

    fn was_killed(&self, handle: u32, since: Instant) -> Option<bool> {
        FileLayer::was_killed(self, handle, since)
    }

    fn core_time(&self, handle: u32) -> Option<Duration> {
        self.below().core_time(handle)
    }
}
