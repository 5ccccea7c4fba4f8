// SPDX-License-Identifier: MIT OR Apache-2.0
//! A service whose open files have a layer in front of them.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use npu_capture::{RecordedFile, Recording};
use rocket_uapi::{Caller, FileLayer};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::service::{MapOf, OpenFile, Service};

/// What puts a layer in front of an open file.
type AddLayer = dyn Fn(Box<dyn OpenFile>) -> Box<dyn OpenFile> + Send + Sync;

/// Serves another service, with a layer in front of each file that it opens.
pub struct LayeredService {
    below: Arc<dyn Service>,
    add_layer: Box<AddLayer>,
}

impl LayeredService {
    /// Puts what `add_layer` gives in front of the files of `below`.
    #[must_use]
    pub fn new(
        below: Arc<dyn Service>,
        add_layer: impl Fn(Box<dyn OpenFile>) -> Box<dyn OpenFile> + Send + Sync + 'static,
    ) -> Self {
        Self {
            below,
            add_layer: Box::new(add_layer),
        }
    }

    /// Records the jobs of `below`.
    #[must_use]
    pub fn recording(below: Arc<dyn Service>, recording: Recording) -> Self {
        Self::new(below, move |file| Box::new(recording.of(file)))
    }
}

impl fmt::Debug for LayeredService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayeredService")
            .field("below", &self.below)
            .finish_non_exhaustive()
    }
}

impl Service for LayeredService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok((self.add_layer)(self.below.open()?))
    }

    fn open_sw_sync(&self) -> Result<OwnedFd, Errno> {
        self.below.open_sw_sync()
    }

    fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        number: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<Option<i32>, Errno> {
        self.below.file_ioctl(file, number, arg, caller)
    }

    fn file_mmap(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Option<()>, Errno> {
        self.below.file_mmap(file, offset, len, prot, flags)
    }

    fn collect(&self) {
        self.below.collect();
    }

    fn is_emulated(&self) -> bool {
        self.below.is_emulated()
    }
}

impl OpenFile for RecordedFile<Box<dyn OpenFile>> {
    fn client_map(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno> {
        self.below().client_map(offset, len, flags)
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.below().bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.below().is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        self.into_inner().close(is_ending, died);
    }
}
