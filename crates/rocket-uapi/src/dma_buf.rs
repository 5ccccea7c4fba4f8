// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that others have too: exported ones and imported ones.
//!
//! Others may write such memory at any time, another file of this process as
//! well as another process, and no type here can see them. So there is no slice
//! of it: bytes are copied in and out, as atomic words. The words of a copy may
//! be torn where somebody writes meanwhile; fences are there to prevent it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rknpu_regcmd::Iova;

use crate::bo::Bo;
use crate::device::Device;
use crate::error::Error;
use crate::fences::BufferAccess;
use crate::handles::ImportedHandle;
use crate::mapped::MappedMemory;
use crate::sync_file::{SyncFile, duplicate};
use crate::units::{Deadline, Handle};
use crate::words;

fn check_range(offset: usize, count: usize, len: usize) -> Result<(), Error> {
    match offset.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfBounds { offset, count, len }),
    }
}

impl Bo {
    /// Exports it as a dma-buf for others (PRIME).
    ///
    /// The dma-buf keeps the object and its file open: kernels of today use
    /// freed memory if the file of an object that was ever exported goes before
    /// the object. So they do where the process is killed meanwhile, which no
    /// program can prevent (docs/uapi.md). Jobs and their proofs export nothing.
    ///
    /// # Errors
    /// When the driver refuses, or there is no file descriptor left.
    pub fn export(self) -> Result<DmaBuf, (Error, Self)> {
        // Of what others have, nobody knows who wrote it last.
        let exported = self
            .give_back()
            .and_then(|()| self.device().file().export_bo(self.handle()));
        match exported {
            Ok(fd) => Ok(DmaBuf::exported(self, fd)),
            Err(error) => Err((error, self)),
        }
    }
}

impl Device {
    /// Takes a dma-buf that another file of the same device exported.
    ///
    /// # Errors
    /// A dma-buf of another device (the driver cannot map their pages) or of
    /// this very file, no dma-buf at all; no file descriptor left.
    pub fn import(&self, dma_buf: BorrowedFd<'_>) -> Result<DmaBuf, Error> {
        DmaBuf::imported(self, dma_buf)
    }
}

/// A buffer object that others have too, as a dma-buf, which is its descriptor
/// ([`AsFd`]). Clones share it.
///
/// One that this file exported is memory of its own: jobs of the file may read and
/// write it ([`crate::JobBuilder::reads_shared`], [`crate::JobBuilder::writes_shared`]).
/// Keep it until the others' jobs have ended and they have closed what they
/// imported and their copies of the descriptor: a dma-buf that outlives the file
/// it came from makes kernels of today use freed memory when it goes.
///
/// For one of another file of the same device the NPU has no address in this file:
/// PRIME import gives a handle, and no ioctl of the driver maps it for the importer
/// (observed on Linux 7.2). So no program can name it. What it is good for: jobs list it
/// to be ordered among those of other files, its fences can be had and added to, and the
/// CPU can read and write it.
#[derive(Clone, Debug)]
pub struct DmaBuf(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    // Dropped in this order: munmap and GEM_CLOSE, the dma-buf, the file.
    object: SharedObject,
    fd: OwnedFd,
    device: Device,
}

#[derive(Debug)]
enum SharedObject {
    /// Of this file. No guard of it can be had any more.
    Exported(Bo),
    /// Of another one.
    Imported {
        // Dropped in this order.
        memory: Box<dyn MappedMemory>,
        handle: ImportedHandle,
    },
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let SharedObject::Exported(_) = self.object {
            // A job of another file that used it may have ended just now, and the
            // driver lets go of it a little later, into this file's memory.
            self.device.note_end();
        }
    }
}

impl DmaBuf {
    fn exported(bo: Bo, fd: OwnedFd) -> Self {
        Self(Arc::new(Shared {
            device: bo.device().clone(),
            object: SharedObject::Exported(bo),
            fd,
        }))
    }

    fn imported(device: &Device, dma_buf: BorrowedFd<'_>) -> Result<Self, Error> {
        let fd = duplicate(dma_buf)?;
        let handle = ImportedHandle::import(device, dma_buf)?;
        let memory = device.file().map_dma_buf(dma_buf)?;
        Ok(Self(Arc::new(Shared {
            object: SharedObject::Imported { memory, handle },
            fd,
            device: device.clone(),
        })))
    }

    /// The file by which it is reached here.
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

    /// The object behind it, where programs have addresses for it: of this file.
    pub(crate) fn addressable(&self) -> Option<&Bo> {
        match &self.0.object {
            SharedObject::Exported(bo) => Some(bo),
            SharedObject::Imported { .. } => None,
        }
    }

    /// Where the NPU sees it, through the file that made it; `None` for an imported one.
    #[must_use]
    pub fn iova(&self) -> Option<Iova> {
        self.addressable().map(Bo::iova)
    }

    /// Its memory. Without [`DmaBuf::read_into`]'s and [`DmaBuf::write_from`]'s PREP_BO
    /// and FINI_BO the CPU's caches and the NPU may disagree about it.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
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

    /// What an access would have to wait for now: the jobs that write it, and
    /// for [`BufferAccess::Write`] also whatever was added as reading it.
    ///
    /// # Errors
    /// The device has no sync_files; no file descriptor left.
    pub fn fence(&self, access: BufferAccess) -> Result<SyncFile, Error> {
        let files = self.device().shared_files();
        let fd = files.export_sync_file(self.as_fd(), access)?;
        Ok(SyncFile::new(fd, files))
    }

    /// Makes later jobs wait for `fence` as for the end of an access:
    /// [`BufferAccess::Read`] holds up jobs that write the buffer, [`BufferAccess::Write`]
    /// all jobs, and the CPU.
    ///
    /// # Errors
    /// The device has no sync_files, or none of this kind.
    pub fn add_fence(&self, access: BufferAccess, fence: &SyncFile) -> Result<(), Error> {
        let files = self.device().shared_files();
        files.import_sync_file(self.as_fd(), access, fence.as_fd())
    }

    /// Copies bytes out, from `offset` on, once no job writes them (PREP_BO).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::TimedOut`]; PREP_BO or FINI_BO fails.
    pub fn read_into(&self, offset: usize, out: &mut [u8], until: Deadline) -> Result<(), Error> {
        check_range(offset, out.len(), self.len())?;
        self.prepared(until, |words| words::load(words, offset, out))
    }

    /// Copies bytes in, from `offset` on, once no job writes the buffer
    /// (PREP_BO). It does not wait for those who read it: for that, wait for
    /// [`DmaBuf::fence`] with [`BufferAccess::Write`] first.
    ///
    /// # Errors
    /// As [`DmaBuf::read_into`].
    pub fn write_from(&self, offset: usize, data: &[u8], until: Deadline) -> Result<(), Error> {
        check_range(offset, data.len(), self.len())?;
        self.prepared(until, |words| words::store(words, offset, data))
    }

    /// Does `access` between PREP_BO and FINI_BO.
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
