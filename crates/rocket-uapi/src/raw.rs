// SPDX-License-Identifier: MIT OR Apache-2.0
//! The door for driver tests: ioctl numbers and bytes, with nothing checked in
//! between, so that a test can send what a correct client never would.

use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};

use crate::Errno;

/// A mapping made through [`RawDevice::mmap`]. Dropping it unmaps.
pub trait RawMap: fmt::Debug + Send {
    /// First byte.
    fn as_ptr(&self) -> *mut u8;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether there are none: never.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Raw access to one open file of a device.
pub trait RawDevice: fmt::Debug + Send + Sync {
    /// ioctl with an argument of `arg.len()` bytes; `None` passes NULL.
    ///
    /// # Errors
    /// What the driver says, EINTR included.
    ///
    /// # Safety
    /// Addresses inside `arg`, and inside what they lead to, must be ones that
    /// the driver may read or write as the ioctl defines, or invalid. The
    /// request must not make the driver touch more than `arg` at `arg`.
    unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<i32, Errno>;

    /// As [`RawDevice::ioctl`], on a dma-buf or a sync_file that came from this
    /// device.
    ///
    /// # Errors
    /// What the kernel says, EINTR included.
    ///
    /// # Safety
    /// As for [`RawDevice::ioctl`].
    unsafe fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: Option<&mut [u8]>,
    ) -> Result<i32, Errno>;

    /// lseek on such a file.
    ///
    /// # Errors
    /// What the kernel says.
    fn file_seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno>;

    /// mmap of `len` bytes at `offset` of the file.
    ///
    /// # Errors
    /// What the driver says.
    fn mmap(
        &self,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Box<dyn RawMap>, Errno>;

    /// poll without waiting: the events that are ready.
    ///
    /// # Errors
    /// What the kernel says.
    fn poll(&self) -> Result<i16, Errno>;

    /// A non-blocking read.
    ///
    /// # Errors
    /// What the driver says.
    fn read(&self, into: &mut [u8]) -> Result<usize, Errno>;
}
