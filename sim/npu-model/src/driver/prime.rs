// SPDX-License-Identifier: MIT OR Apache-2.0
//! PRIME: buffer objects as dma-bufs, and back.
//!
//! The rocket driver cannot import the pages of another exporter. So a file
//! of another device, or none of the model's, is refused.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::dma_buf::ModelDmaBuf;
use super::file::DrmFile;
use super::gem::GemObject;
use super::shared_file::{self, SharedFile};

impl DrmFile {
    /// PRIME_HANDLE_TO_FD without the number: a dma-buf of `handle`, for writing
    /// only if that is asked for here or was at the first export.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle, `EOPNOTSUPP` for heap pages,
    /// `EMFILE`.
    pub(super) fn prime_export(&self, handle: u32, writable: bool) -> Result<OwnedFd, Errno> {
        let object = self.lookup(handle).ok_or(Errno::NOENT)?;
        ModelDmaBuf::export(&object, writable)
    }

    /// PRIME_FD_TO_HANDLE: the handle of the buffer object behind a
    /// descriptor of this process. No IOVA comes with it in a file that did
    /// not create the object.
    ///
    /// # Errors
    /// `EBADF` for a number that is not open, `EINVAL` for a file that is no
    /// dma-buf of this device.
    pub(super) fn prime_import(&self, fd: RawFd) -> Result<u32, Errno> {
        shared_file::collect();
        let object = self.exported(fd)?;
        let mut handles = self.handles();
        match handles.find(&object) {
            Some(handle) => Ok(handle),
            None => handles.insert(object),
        }
    }

    /// The object that this device exported as `fd`.
    fn exported(&self, fd: RawFd) -> Result<Arc<GemObject>, Errno> {
        let file = SharedFile::of(fd)?;
        let object = file.as_ref().and_then(|file| file.0.object());
        let own = object.filter(|object| object.is_of(&self.driver().objects));
        own.cloned().ok_or(Errno::INVAL)
    }
}
