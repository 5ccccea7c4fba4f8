// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves the software model.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use npu_model::Model;
use npu_model::driver::{DrmFile, SharedFile};
use rocket_uapi::{Caller, MapRequest};
use rustix::io::Errno;

use crate::service::{MapOf, OpenFile, Service};

/// Serves a software device.
pub struct ModelService {
    model: Arc<Model>,
}

impl ModelService {
    /// Serves `model`, which should be of [`Backing::Mapped`].
    ///
    /// [`Backing::Mapped`]: npu_model::Backing::Mapped
    #[must_use]
    pub fn new(model: Arc<Model>) -> Self {
        Self { model }
    }
}

impl fmt::Debug for ModelService {
    /// Leaves out the chip, which would print the whole CBUF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelService").finish_non_exhaustive()
    }
}

impl Service for ModelService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok(Box::new(self.model.open_file()))
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
        self.model.collect();
    }

    fn is_emulated(&self) -> bool {
        true
    }
}

impl OpenFile for DrmFile {
    fn client_map(&self, request: &MapRequest) -> Result<MapOf, Errno> {
        let file = self.mmap_file(request)?;
        Ok(MapOf { file, offset: 0 })
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
