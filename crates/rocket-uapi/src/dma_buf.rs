// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared buffers: exported and imported dma-bufs.
//!
//! Another file of this process, or another process, may write such memory at any time, and
//! no type here can prevent it. So there is no slice of it: bytes are copied in and out, as
//! atomic words. A copy may mix old and new words if somebody writes meanwhile; use fences
//! to prevent that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rknpu_regcmd::Iova;
use rustix::io::fcntl_dupfd_cloexec;

use crate::bo::Bo;
use crate::device::Device;
use crate::error::Error;
use crate::fences::BufferAccess;
use crate::file::MappedMemory;
use crate::handles::GemHandle;
use crate::sync_file::SyncFile;
use crate::units::{Deadline, Handle};
use crate::words;

fn check_range(offset: usize, count: usize, len: usize) -> Result<(), Error> {
    match offset.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfBounds { offset, count, len }),
    }
}

impl Bo {
    /// Exports the BO as a dma-buf (PRIME).
    ///
    /// The dma-buf keeps the object and its file open. Current kernels use freed memory if
    /// the file of an exported object is freed before the object. They also do so if the
    /// process is killed meanwhile, which no program can prevent (docs/uapi.md). Jobs and
    /// their proofs export nothing.
    ///
    /// # Errors
    /// The driver refuses the export; no file descriptor left.
    pub fn export(self) -> Result<DmaBuf, (Error, Self)> {
        // The last writer of a shared object is unknown, so sync it now.
        let exported = self
            .give_back()
            .and_then(|()| self.device().export_bo(self.handle()));
        match exported {
            Ok(fd) => Ok(DmaBuf(Arc::new(Shared {
                device: self.device().clone(),
                object: SharedObject::Exported(self),
                fd,
            }))),
            Err(error) => Err((error, self)),
        }
    }
}

impl Device {
    /// Imports a dma-buf that another file of the same device exported.
    ///
    /// # Errors
    /// A dma-buf of another device (the driver cannot map its pages), or of this file; a
    /// file that is no dma-buf; no file descriptor left.
    pub fn import(&self, dma_buf: BorrowedFd<'_>) -> Result<DmaBuf, Error> {
        let fd = fcntl_dupfd_cloexec(dma_buf, 0).map_err(|errno| Error::of("dup", None, errno))?;
        let handle = GemHandle::import(self, dma_buf)?;
        let memory = self.shared_files().map(dma_buf)?;
        Ok(DmaBuf(Arc::new(Shared {
            object: SharedObject::Imported { memory, handle },
            fd,
            device: self.clone(),
        })))
    }
}

/// A shared buffer object with its dma-buf, whose descriptor [`AsFd`] returns. Clones share
/// it.
///
/// A BO that this file exported has an NPU address here: jobs of the file may read and
/// write it ([`crate::JobBuilder::reads_shared`], [`crate::JobBuilder::writes_shared`]).
/// Keep it until the jobs of other holders have ended, and they have closed their imports
/// and their copies of the descriptor. If a dma-buf outlives the file that exported it,
/// current kernels use freed memory when the dma-buf is freed.
///
/// An imported BO, of another file of the same device, has no NPU address here: PRIME
/// import returns a handle, and no ioctl of the driver maps it for the importer (observed
/// on Linux 7.2). So no program can access it. Jobs can list it to be ordered among jobs of
/// other files, you can take and add fences, and the CPU can read and write it.
#[derive(Clone, Debug)]
pub struct DmaBuf(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    // Drop order: munmap and GEM_CLOSE, the dma-buf, the file.
    object: SharedObject,
    fd: OwnedFd,
    device: Device,
}

#[derive(Debug)]
enum SharedObject {
    /// A BO of this file. It gives no guards any more.
    Exported(Bo),
    /// A BO of another file.
    Imported {
        // Drop order: mapping, handle.
        memory: Box<dyn MappedMemory>,
        handle: GemHandle,
    },
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let SharedObject::Exported(_) = self.object {
            // A job of another file that used the BO may have ended just now. The driver
            // releases it a little later, and that accesses this file's memory.
            self.device.note_end();
        }
    }
}

impl DmaBuf {
    /// The open file that holds this handle.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its handle in that file.
    #[must_use]
    pub fn handle(&self) -> Handle {
        match &self.0.object {
            SharedObject::Exported(bo) => bo.handle(),
            SharedObject::Imported { handle, .. } => handle.get(),
        }
    }

    /// The BO, if this file exported it: only then can programs address it.
    pub(crate) fn addressable(&self) -> Option<&Bo> {
        match &self.0.object {
            SharedObject::Exported(bo) => Some(bo),
            SharedObject::Imported { .. } => None,
        }
    }

    /// NPU address of the BO, valid in the file that made it; `None` for an imported BO.
    #[must_use]
    pub fn iova(&self) -> Option<Iova> {
        self.addressable().map(Bo::iova)
    }

    /// Its memory. Only [`DmaBuf::read_into`] and [`DmaBuf::write_from`] call PREP_BO and
    /// FINI_BO; without these the CPU's caches and the NPU may see different bytes.
    fn words(&self) -> &[AtomicU64] {
        match &self.0.object {
            SharedObject::Exported(bo) => bo.memory().words(),
            SharedObject::Imported { memory, .. } => memory.words(),
        }
    }

    /// Length in bytes: whole pages, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        size_of_val(self.words())
    }

    /// A fence for all that an access would have to wait for now: the jobs that write the
    /// buffer, and for [`BufferAccess::Write`] also the readers' fences that were added.
    ///
    /// # Errors
    /// The device has no sync_files; no file descriptor left.
    pub fn fence(&self, access: BufferAccess) -> Result<SyncFile, Error> {
        let files = self.device().shared_files();
        let fd = files.export_sync_file(self.as_fd(), access)?;
        Ok(SyncFile::new(fd, files))
    }

    /// Makes later jobs wait for `fence`, as for the end of an access: after
    /// [`BufferAccess::Read`] jobs that write the buffer wait; after
    /// [`BufferAccess::Write`] all jobs and the CPU wait.
    ///
    /// # Errors
    /// The device has no sync_files, or does not accept this kind.
    pub fn add_fence(&self, access: BufferAccess, fence: &SyncFile) -> Result<(), Error> {
        let files = self.device().shared_files();
        files.import_sync_file(self.as_fd(), access, fence.as_fd())
    }

    /// Copies bytes from `offset` on into `out`, once no job writes the buffer (PREP_BO).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::TimedOut`]; PREP_BO or FINI_BO fails.
    pub fn read_into(&self, offset: usize, out: &mut [u8], until: Deadline) -> Result<(), Error> {
        check_range(offset, out.len(), self.len())?;
        self.prepared(until, |words| words::load(words, offset, out))
    }

    /// Copies `data` into the buffer from `offset` on, once no job writes the buffer
    /// (PREP_BO). It does not wait for readers: to do so, wait for [`DmaBuf::fence`] with
    /// [`BufferAccess::Write`] first.
    ///
    /// # Errors
    /// As [`DmaBuf::read_into`].
    pub fn write_from(&self, offset: usize, data: &[u8], until: Deadline) -> Result<(), Error> {
        check_range(offset, data.len(), self.len())?;
        self.prepared(until, |words| words::store(words, offset, data))
    }

    /// Runs `access` between PREP_BO and FINI_BO.
    fn prepared(&self, until: Deadline, access: impl FnOnce(&[AtomicU64])) -> Result<(), Error> {
        self.device().prep(self.handle(), self.len(), until)?;
        self.device().note_wait();
        access(self.words());
        self.device().fini(self.handle(), self.len())
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}
