// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw calls that single rows make: NULL, names, structures of other sizes.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use npu_model::driver::SharedFile;
use rocket_uapi::{Errno, sys};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::check::{RowOutcome, refused};
use crate::raw::File;

/// Bytes of the largest structure of the requests of dma-bufs and sync_files.
const LARGEST: usize = size_of::<sys::SyncFileInfo>();

/// SET_NAME with an address of 32 bits.
const SET_NAME_A: u32 = sys::DMA_BUF_SET_NAME ^ (8 | 4) << 16;

impl File {
    fn null_on(&self, file: BorrowedFd<'_>, request: u32) -> Result<(), Errno> {
        // SAFETY: nothing can be read or written at NULL.
        unsafe { self.file_ioctl(file, request, None) }
    }

    /// A request with one byte less or more than it takes, all zeros.
    fn resized_on(&self, file: BorrowedFd<'_>, request: u32) -> Result<(), Errno> {
        let mut arg = [0; LARGEST + 1];
        // SAFETY: the size in the request is at most that of `arg`, which holds no
        // address but NULL.
        unsafe { self.file_ioctl(file, request ^ 1 << 16, Some(&mut arg)) }
    }

    /// Fails unless requests of another size are ENOTTY, and EFAULT at NULL. There the
    /// request `foreign`, of another kind of file, is ENOTTY.
    pub(crate) fn check_requests(
        &self,
        file: BorrowedFd<'_>,
        known: [u32; 3],
        foreign: u32,
    ) -> RowOutcome {
        let known = known.map(|request| (request, Errno::FAULT));
        for (request, error) in known.into_iter().chain([(foreign, Errno::NOTTY)]) {
            let what = format!("request {request:#x} with another size");
            refused(&what, self.resized_on(file, request), Errno::NOTTY)?;
            let what = format!("request {request:#x} at NULL");
            refused(&what, self.null_on(file, request), error)?;
        }
        Ok(())
    }

    /// SET_NAME in both forms.
    pub(crate) fn set_names(&self, dma_buf: BorrowedFd<'_>, name: &CStr) -> [Result<(), Errno>; 2] {
        [SET_NAME_A, sys::DMA_BUF_SET_NAME].map(|request| {
            let mut name = name.to_bytes_with_nul().to_vec();
            // SAFETY: the kernel reads up to the terminator.
            unsafe { self.file_ioctl(dma_buf, request, Some(&mut name)) }
        })
    }
}

/// Whether a dma-buf can be read and written at once, by poll. The model's
/// descriptors do not support poll, so the model answers.
pub(crate) fn readiness(dma_buf: &OwnedFd) -> Result<[bool; 2], Errno> {
    let both = PollFlags::IN | PollFlags::OUT;
    let ready = match SharedFile::of(dma_buf.as_raw_fd())? {
        Some(file) => file.poll(both),
        None => {
            let mut fds = [PollFd::new(dma_buf, both)];
            rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
            fds[0].revents()
        }
    };
    Ok([PollFlags::IN, PollFlags::OUT].map(|event| ready.contains(event)))
}
