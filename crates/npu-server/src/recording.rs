// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device whose jobs are recorded: in front of the one that is served.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use npu_capture::{RecordedFile, Recording};
use rocket_uapi::Caller;
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::service::{MapOf, OpenFile, Service};

/// Serves another service and records its jobs.
#[derive(Debug)]
pub struct RecordingService {
    inner: Arc<dyn Service>,
    recording: Recording,
}

impl RecordingService {
    /// Records the jobs of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Service>, recording: Recording) -> Self {
        Self { inner, recording }
    }
}

impl Service for RecordingService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok(Box::new(self.recording.of(self.inner.open()?)))
    }

    fn open_sw_sync(&self) -> Result<OwnedFd, Errno> {
        self.inner.open_sw_sync()
    }

    fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        number: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<Option<i32>, Errno> {
        self.inner.file_ioctl(file, number, arg, caller)
    }

    fn collect(&self) {
        self.inner.collect();
    }

    fn is_emulated(&self) -> bool {
        self.inner.is_emulated()
    }
}

impl OpenFile for RecordedFile<Box<dyn OpenFile>> {
    fn client_map(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno> {
        self.inner().client_map(offset, len, flags)
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.inner().bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.inner().is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        self.into_inner().close(is_ending, died);
    }
}
