// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model, with ioctls of a test's own.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use npu_model::Model;
use npu_model::driver::Caller;
use npu_server::{MapOf, ModelService, OpenFile, Service};
use rocket_uapi::{About, Errno, Error, FileOperations, MappedMemory, SharedFileOperations};
use rustix::mm::{MapFlags, ProtFlags};

/// Does an ioctl, perhaps by the file behind.
type Hook = dyn Fn(&dyn OpenFile, u32, &mut [u8], &dyn Caller) -> Result<i32, Errno> + Send + Sync;

/// A service or an open file whose ioctls go through a hook.
pub(crate) struct Hooked<T> {
    inner: T,
    hook: Arc<Hook>,
}

impl<T> fmt::Debug for Hooked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl Hooked<ModelService> {
    pub(crate) fn new(
        model: Arc<Model>,
        hook: impl Fn(&dyn OpenFile, u32, &mut [u8], &dyn Caller) -> Result<i32, Errno>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            inner: ModelService::new(model),
            hook: Arc::new(hook),
        }
    }
}

impl Service for Hooked<ModelService> {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok(Box::new(Hooked {
            inner: self.inner.open()?,
            hook: Arc::clone(&self.hook),
        }))
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

// SAFETY: all is the inner file's.
unsafe impl FileOperations for Hooked<Box<dyn OpenFile>> {
    fn about(&self) -> About {
        self.inner.about()
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        (self.hook)(&*self.inner, request, arg, caller)
    }

    fn mmap(
        &self,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Box<dyn MappedMemory>, Errno> {
        self.inner.mmap(offset, len, prot, flags)
    }

    fn poll(&self) -> Result<i16, Errno> {
        self.inner.poll()
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        self.inner.read(into)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        self.inner.reopen()
    }

    fn shared_files(&self) -> Arc<dyn SharedFileOperations> {
        self.inner.shared_files()
    }

    fn was_killed(&self, handle: u32, since: Instant) -> Option<bool> {
        self.inner.was_killed(handle, since)
    }
}

impl OpenFile for Hooked<Box<dyn OpenFile>> {
    fn client_map(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno> {
        self.inner.client_map(offset, len, flags)
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.inner.bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.inner.is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        self.inner.close(is_ending, died);
    }
}
