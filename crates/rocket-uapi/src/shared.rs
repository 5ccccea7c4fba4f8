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

use crate::access::shared_words;
use crate::bo::Bo;
use crate::device::Device;
use crate::error::Error;
use crate::handles::ImportedHandle;
use crate::mapped::MappedMemory;
use crate::sharing::BufferAccess;
use crate::sync_file::{SyncFile, duplicate};
use crate::units::{Deadline, Handle};
use crate::words;

/// What can be done with a buffer that others have too. Its dma-buf is its
/// descriptor ([`AsFd`]).
pub trait SharedBuffer: AsFd {
    /// The file by which it is reached here.
    fn device(&self) -> &Device;

    /// Its handle in that file.
    fn handle(&self) -> Handle;

    /// Its memory. Without [`SharedBuffer::read_into`]'s and
    /// [`SharedBuffer::write_from`]'s PREP_BO and FINI_BO the CPU's caches and
    /// the NPU may disagree about it.
    fn words(&self) -> &[AtomicU64];

    /// Length in bytes: whole pages.
    fn len(&self) -> usize {
        size_of_val(self.words())
    }

    /// Whether it has no bytes: never.
    fn is_empty(&self) -> bool {
        self.words().is_empty()
    }

    /// What an access would have to wait for now: the jobs that write it, and
    /// for [`BufferAccess::Write`] also whatever was added as reading it.
    ///
    /// # Errors
    /// The device has no sync_files; no file descriptor left.
    fn fence(&self, access: BufferAccess) -> Result<SyncFile, Error> {
        let files = self.device().shared_files()?;
        let fd = files.export_sync_file(self.as_fd(), access)?;
        Ok(SyncFile::new(fd, files))
    }

    /// Has later jobs wait for `fence` as for the end of an access:
    /// [`BufferAccess::Read`] holds up jobs that write the buffer, [`BufferAccess::Write`]
    /// all jobs, and the CPU.
    ///
    /// # Errors
    /// The device has no sync_files, or none of this kind.
    fn add_fence(&self, access: BufferAccess, fence: &SyncFile) -> Result<(), Error> {
        let files = self.device().shared_files()?;
        files.import_sync_file(self.as_fd(), access, fence.as_fd())
    }

    /// Copies bytes out, from `offset` on, once no job writes them (PREP_BO).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::TimedOut`]; PREP_BO or FINI_BO fails.
    fn read_into(&self, offset: usize, out: &mut [u8], until: Deadline) -> Result<(), Error> {
        check_range(offset, out.len(), self.len())?;
        prepared(self, until, |words| words::load(words, offset, out))
    }

    /// Copies bytes in, from `offset` on, once no job writes the buffer
    /// (PREP_BO). It does not wait for those who read it: for that, wait for
    /// [`SharedBuffer::fence`] with [`BufferAccess::Write`] first.
    ///
    /// # Errors
    /// As [`SharedBuffer::read_into`].
    fn write_from(&self, offset: usize, data: &[u8], until: Deadline) -> Result<(), Error> {
        check_range(offset, data.len(), self.len())?;
        prepared(self, until, |words| words::store(words, offset, data))
    }
}

fn check_range(offset: usize, count: usize, len: usize) -> Result<(), Error> {
    match offset.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfBounds { offset, count, len }),
    }
}

/// Does `access` between PREP_BO and FINI_BO.
fn prepared<T: SharedBuffer + ?Sized>(
    buffer: &T,
    until: Deadline,
    access: impl FnOnce(&[AtomicU64]),
) -> Result<(), Error> {
    let device = buffer.device();
    device.prep(buffer.handle(), buffer.len(), until)?;
    device.note_wait();
    access(buffer.words());
    device.fini(buffer.handle(), buffer.len())
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
            .and_then(|()| self.device().backend().export_bo(self.handle()));
        match exported {
            Ok(fd) => Ok(DmaBuf::new(self, fd)),
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
    pub fn import(&self, dma_buf: BorrowedFd<'_>) -> Result<ImportedBo, Error> {
        ImportedBo::new(self, dma_buf)
    }
}

/// A buffer object that was exported as a dma-buf. Clones share it.
///
/// Jobs of the file that made it may read and write it
/// ([`crate::JobBuilder::reads_shared`], [`crate::JobBuilder::writes_shared`]).
/// Keep this until the others' jobs have ended and they have closed what they
/// imported and their copies of the descriptor: a dma-buf that outlives the file
/// it came from makes kernels of today use freed memory when it goes.
#[derive(Clone, Debug)]
pub struct DmaBuf(Arc<Exported>);

#[derive(Debug)]
struct Exported {
    // Dropped in this order: munmap and GEM_CLOSE, the dma-buf, the file.
    bo: Bo,
    fd: OwnedFd,
    device: Device,
}

impl Drop for Exported {
    fn drop(&mut self) {
        // A job of another file that used it may have ended just now, and the
        // driver lets go of it a little later, into this file's memory.
        self.device.note_end();
    }
}

impl DmaBuf {
    pub(crate) fn new(bo: Bo, fd: OwnedFd) -> Self {
        let device = bo.device().clone();
        Self(Arc::new(Exported { bo, fd, device }))
    }

    /// Where the NPU sees it, through the file that made it.
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.0.bo.iova()
    }

    pub(crate) fn bo(&self) -> &Bo {
        &self.0.bo
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl SharedBuffer for DmaBuf {
    fn device(&self) -> &Device {
        &self.0.device
    }

    fn handle(&self) -> Handle {
        self.0.bo.handle()
    }

    fn words(&self) -> &[AtomicU64] {
        shared_words(&self.0.bo)
    }
}

/// A dma-buf of another file of the same device. Clones share it.
///
/// The NPU has no address for it in this file: PRIME import gives a handle,
/// and no ioctl of the driver maps it for the importer (observed on Linux 7.2).
/// So no program can name it. What it is good for: jobs list it to be ordered
/// among those of other files, its fences can be had and added to, and the CPU
/// can read and write it.
#[derive(Clone, Debug)]
pub struct ImportedBo(Arc<Imported>);

#[derive(Debug)]
struct Imported {
    // Dropped in this order: munmap, GEM_CLOSE, the dma-buf, the file.
    memory: Box<dyn MappedMemory>,
    handle: ImportedHandle,
    fd: OwnedFd,
    device: Device,
}

impl ImportedBo {
    pub(crate) fn new(device: &Device, dma_buf: BorrowedFd<'_>) -> Result<Self, Error> {
        let fd = duplicate(dma_buf)?;
        let handle = ImportedHandle::import(device, dma_buf)?;
        let memory = device.backend().map_dma_buf(dma_buf)?;
        Ok(Self(Arc::new(Imported {
            memory,
            handle,
            fd,
            device: device.clone(),
        })))
    }
}

impl AsFd for ImportedBo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl SharedBuffer for ImportedBo {
    fn device(&self) -> &Device {
        &self.0.device
    }

    fn handle(&self) -> Handle {
        self.0.handle.get()
    }

    fn words(&self) -> &[AtomicU64] {
        self.0.memory.words()
    }
}

/// Either kind, for a job.
#[derive(Clone, Debug)]
pub enum SharedBo {
    /// Programs may use it.
    Exported(DmaBuf),
    /// It orders the job, and no program can reach it.
    Imported(ImportedBo),
}

impl SharedBo {
    pub(crate) fn device(&self) -> &Device {
        match self {
            Self::Exported(bo) => bo.device(),
            Self::Imported(bo) => bo.device(),
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        match self {
            Self::Exported(bo) => bo.handle(),
            Self::Imported(bo) => bo.handle(),
        }
    }

    /// The object behind it, where programs have addresses for it.
    pub(crate) fn addressable(&self) -> Option<&Bo> {
        match self {
            Self::Exported(dma_buf) => Some(dma_buf.bo()),
            Self::Imported(_) => None,
        }
    }
}

impl From<DmaBuf> for SharedBo {
    fn from(bo: DmaBuf) -> Self {
        Self::Exported(bo)
    }
}

impl From<ImportedBo> for SharedBo {
    fn from(bo: ImportedBo) -> Self {
        Self::Imported(bo)
    }
}

impl From<&DmaBuf> for SharedBo {
    fn from(bo: &DmaBuf) -> Self {
        Self::Exported(bo.clone())
    }
}

impl From<&ImportedBo> for SharedBo {
    fn from(bo: &ImportedBo) -> Self {
        Self::Imported(bo.clone())
    }
}
