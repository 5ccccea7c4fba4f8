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
use super::shared_file::{self, SharedFile, SharedFileKind};

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
            None => {
                self.device().names.handle_opened(&object);
                handles.insert(object)
            }
        }
    }

    /// The object that this device exported as `fd`.
    fn exported(&self, fd: RawFd) -> Result<Arc<GemObject>, Errno> {
        match SharedFile::of(fd)? {
            Some(SharedFile(SharedFileKind::DmaBuf(dma_buf)))
                if dma_buf.object().is_of(&self.device().offsets) =>
            {
                Ok(Arc::clone(dma_buf.object()))
            }
            _ => Err(Errno::INVAL),
        }
    }
}
