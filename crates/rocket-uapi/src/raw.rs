// SPDX-License-Identifier: MIT OR Apache-2.0
//! The door for driver tests: ioctl numbers and bytes, with nothing checked in
//! between, so that a test can send what a correct client never would.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::SeekFrom;

use crate::Errno;
use crate::error::Error;
use crate::file::{FileOperations, MapRequest};
use crate::mapped::MappedMemory;
use crate::own_process::OwnProcess;

/// Raw access to one open file of a device, with addresses of this process.
#[derive(Debug)]
pub struct RawDevice(Arc<dyn FileOperations>);

impl RawDevice {
    pub(crate) fn new(file: Arc<dyn FileOperations>) -> Self {
        Self(file)
    }

    pub(crate) fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        self.0.reopen()
    }

    /// ioctl with an argument of `arg.len()` bytes; `None` passes NULL.
    ///
    /// # Errors
    /// The errno of the driver, EINTR included.
    ///
    /// # Safety
    /// Addresses inside `arg`, and inside what they lead to, must be ones that
    /// the driver may read or write as the ioctl defines, or invalid. The
    /// request must not make the driver touch more than `arg` at `arg`.
    pub unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<i32, Errno> {
        // SAFETY: the addresses that it is asked for are those for which the
        // caller vouches. It lives for this call.
        let user = unsafe { OwnProcess::new() };
        // SAFETY: what the caller promises.
        unsafe { self.0.ioctl(request, arg.unwrap_or_default(), &user) }
    }

    /// As [`RawDevice::ioctl`], on a dma-buf or a sync_file that came from this
    /// device.
    ///
    /// # Errors
    /// The errno of the kernel, EINTR included.
    ///
    /// # Safety
    /// As for [`RawDevice::ioctl`].
    pub unsafe fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: Option<&mut [u8]>,
    ) -> Result<i32, Errno> {
        let arg = arg.map_or(0, |bytes| bytes.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: as in `ioctl`; and `arg` is exclusively ours to lend.
        let user = unsafe { OwnProcess::new() };
        let files = self.0.shared_files();
        // SAFETY: what the caller promises.
        unsafe { files.ioctl(file, request, arg, &user) }
    }

    /// lseek on such a file.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn file_seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        self.0.shared_files().seek(file, to)
    }

    /// mmap of `len` bytes at `offset` of such a file.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn file_mmap(
        &self,
        file: BorrowedFd<'_>,
        request: &MapRequest,
    ) -> Result<Box<dyn MappedMemory>, Errno> {
        self.0.shared_files().mmap(file, request)
    }

    /// mmap of `len` bytes at `offset` of the device.
    ///
    /// # Errors
    /// The errno of the driver.
    pub fn mmap(&self, request: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno> {
        self.0.mmap(request)
    }

    /// poll without waiting: the events that are ready.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn poll(&self) -> Result<i16, Errno> {
        self.0.poll()
    }

    /// A non-blocking read.
    ///
    /// # Errors
    /// The errno of the driver.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(into)
    }
}
