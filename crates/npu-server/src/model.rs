// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software model as what is served.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use npu_capture::BoBytes;
use npu_model::Model;
use npu_model::driver::{Caller, DrmFile, FenceState, SharedFile};
use rocket_uapi::FenceStatus;
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::service::{MapOf, OpenFile, Service};

/// Serves a software device.
pub struct ModelService {
    model: Arc<Model>,
}

impl ModelService {
    /// Serves `model`, which should be of [`Backing::Memfd`].
    ///
    /// [`Backing::Memfd`]: npu_model::Backing::Memfd
    #[must_use]
    pub fn new(model: Arc<Model>) -> Self {
        Self { model }
    }
}

impl fmt::Debug for ModelService {
    /// Not the chip, which prints CBUF and all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelService").finish_non_exhaustive()
    }
}

impl Service for ModelService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok(Box::new(ModelFile(self.model.open_file())))
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

    fn collect(&self) {
        self.model.collect();
    }

    fn is_emulated(&self) -> bool {
        true
    }
}

struct ModelFile(DrmFile);

impl fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelFile").finish_non_exhaustive()
    }
}

impl OpenFile for ModelFile {
    fn ioctl(&self, number: u32, arg: &mut [u8], caller: &dyn Caller) -> Result<i32, Errno> {
        self.0.ioctl(number, arg, caller)
    }

    fn mmap(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno> {
        let file = self.0.mmap_file(offset, len, flags)?;
        Ok(MapOf { file, offset: 0 })
    }

    fn contents(&self, offset: u64, len: usize) -> Result<Box<dyn BoBytes>, Errno> {
        self.0
            .mmap_file(offset, len, MapFlags::SHARED)
            .map(|file| Box::new(Pages(file)) as Box<dyn BoBytes>)
    }

    fn write_fence(&self, handle: u32) -> Result<FenceStatus, Errno> {
        Ok(match self.0.write_fence(handle)?.state() {
            FenceState::Active => FenceStatus::Active,
            FenceState::Signaled => FenceStatus::Signaled,
            FenceState::Failed(errno) => FenceStatus::Failed(errno),
        })
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.0.bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.0.is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        if self.0.close(is_ending) > 0 {
            died();
        }
    }
}

/// The pages of an object, which it lives as long as.
struct Pages(OwnedFd);

impl BoBytes for Pages {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.0, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(Errno::INTR) => (),
                Err(error) => {
                    tracing::error!(%error, "contents of a buffer object are not read");
                    break;
                }
            }
        }
        into[done..].fill(0);
    }
}
