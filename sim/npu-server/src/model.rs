// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves the software model.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use npu_model::Model;
use npu_model::driver::{DrmFile, SharedFile};
use rocket_uapi::{Caller, MapRequest};
use rustix::io::Errno;

use crate::service::{OpenFile, Service};

/// A model to serve should be of [`Backing::Mapped`](npu_model::Backing::Mapped).
impl Service for Model {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok(Box::new(self.open_file()))
    }

    fn open_sw_sync(&self) -> Result<OwnedFd, Errno> {
        SharedFile::open_sw_sync()
    }

    fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        number: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<Option<i32>, Errno> {
        match SharedFile::of(file.as_raw_fd())? {
            Some(file) => file.ioctl(number, arg, caller).map(Some),
            None => Ok(None),
        }
    }

    fn file_mmap(&self, file: BorrowedFd<'_>, request: &MapRequest) -> Result<Option<()>, Errno> {
        match SharedFile::of(file.as_raw_fd())? {
            Some(file) => file.check_mmap(request).map(Some),
            None => Ok(None),
        }
    }

    fn collect(&self) {
        self.collect();
    }

    fn is_emulated(&self) -> bool {
        true
    }
}

impl OpenFile for DrmFile {
    fn client_map(&self, request: &MapRequest) -> Result<(OwnedFd, u64), Errno> {
        Ok((self.mmap_file(request)?, 0))
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        if (*self).close(is_ending) > 0 {
            died();
        }
    }
}
