// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects: memory that CPU and NPU share.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::Iova;

use crate::device::Device;
use crate::error::Error;
use crate::fences::BufferAccess;
use crate::handles::GemHandle;
use crate::mapped::MappedMemory;
use crate::rocket_file::RawBo;
use crate::sync_file::SyncFile;
use crate::units::{ByteLen, Deadline, Handle};

impl Device {
    /// A new buffer object of zeroes.
    ///
    /// # Errors
    /// Out of memory, NPU addresses or file descriptors; device gone.
    pub fn alloc(&self, len: ByteLen) -> Result<Bo, Error> {
        let len = len.page_rounded();
        Bo::new(self, self.file().create_bo(len)?, len)
    }
}

/// A buffer object with a unique owner.
///
/// The CPU reaches its bytes through guards only: [`Bo::read`] and
/// [`Bo::write`] take it from the NPU (PREP_BO), dropping the guard gives it
/// back (FINI_BO). A job takes the `Bo` itself, so that no guard can exist
/// while the NPU may touch it. PREP and FINI work on the whole object: make it
/// no larger than what you use, and for double buffering take two.
///
/// Both walk the caches over the whole object, so each is done only where it
/// does something: PREP_BO if a job may have written since the last one,
/// FINI_BO if the CPU may have. [`Device::cache_traffic`] counts them.
///
/// Dropping it unmaps the memory and closes the handle.
#[derive(Debug)]
pub struct Bo {
    // Dropped in this order, which the driver needs (docs/uapi.md): munmap,
    // GEM_CLOSE, and with the `Device` inside perhaps the file.
    memory: Box<dyn MappedMemory>,
    gem: GemHandle,
    iova: Iova,
    /// Whether a job may have written it since the last PREP_BO: the CPU's
    /// caches may hold what was there before.
    stale: AtomicBool,
    /// Whether the CPU may have written it since the last FINI_BO: the bytes
    /// may be nowhere but in its caches.
    dirty: AtomicBool,
}

impl Bo {
    /// Takes what the backend made, and checks it; on an error it is closed.
    pub(crate) fn new(device: &Device, raw: RawBo, len: ByteLen) -> Result<Self, Error> {
        // The kernel wrote its zeroes back when it mapped the pages for the
        // NPU (`drm_gem_shmem_get_pages_sgt`).
        let bo = Self::from_raw(device, raw);
        if bo.len() < len.get() {
            return Err(Error::MappingTooShort {
                handle: bo.handle(),
                mapped: bo.len(),
                len,
            });
        }
        if u64::from(bo.iova.0) + bo.len() as u64 > Iova::END {
            return Err(Error::AddressTooHigh {
                address: u64::from(bo.iova.0),
            });
        }
        Ok(bo)
    }

    /// One that neither the CPU nor a job has written since it was synced.
    pub(crate) fn from_raw(device: &Device, raw: RawBo) -> Self {
        Self {
            memory: raw.memory,
            gem: GemHandle::new(device, raw.handle),
            iova: raw.iova,
            stale: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
        }
    }

    /// What it is, without its file: still mapped and open. It must be synced,
    /// as [`Bo::from_raw`] takes it for.
    pub(crate) fn into_raw(self) -> RawBo {
        RawBo {
            memory: self.memory,
            iova: self.iova,
            handle: self.gem.keep(),
        }
    }

    /// Where the NPU sees it, through the file that made it.
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Length in bytes: what was asked for, rounded up to pages.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// The file that it belongs to.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.gem.device()
    }

    /// Its GEM handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.gem.get()
    }

    /// Makes it read-only and shareable: weights, programs.
    #[must_use]
    pub fn freeze(self) -> FrozenBo {
        FrozenBo(Arc::new(self))
    }

    /// What an access would have to wait for now.
    ///
    /// This exports the object for a moment, and a kernel of today then wants
    /// it closed before its file, even if the process is killed ([`Bo::export`]).
    ///
    /// # Errors
    /// The device has no sync_files; no file descriptor left.
    pub fn fence(&self, access: BufferAccess) -> Result<SyncFile, Error> {
        let files = self.device().shared_files();
        let dma_buf = self.device().file().export_bo(self.handle())?;
        let fd = files.export_sync_file(dma_buf.as_fd(), access)?;
        Ok(SyncFile::new(fd, files))
    }

    /// Has later jobs that write it wait for `fence`, as for one who reads it.
    ///
    /// There is no such function for one who writes it: guards would wait for
    /// it without a deadline. [`crate::DmaBuf::add_fence`] has it. This
    /// exports the object for a moment, as [`Bo::fence`] does.
    ///
    /// # Errors
    /// The device has no sync_files, or none of this kind.
    pub fn add_reader(&self, fence: &SyncFile) -> Result<(), Error> {
        let files = self.device().shared_files();
        let dma_buf = self.device().file().export_bo(self.handle())?;
        files.import_sync_file(dma_buf.as_fd(), BufferAccess::Read, fence.as_fd())
    }

    /// PREP_BO, unless the CPU sees all that jobs have written.
    pub(crate) fn prepare(&self, until: Deadline) -> Result<(), Error> {
        if !self.stale.load(Ordering::Acquire) && !self.device().has_raw_jobs() {
            return Ok(());
        }
        // PREP_BO throws away what is in the caches: a guard that was
        // forgotten may have left something there.
        self.give_back()?;
        self.device().prep(self.handle(), self.len(), until)?;
        self.stale.store(false, Ordering::Release);
        self.device().note_wait();
        Ok(())
    }

    /// [`Bo::prepare`] for a CPU that is going to write it.
    pub(crate) fn prepare_write(&self, until: Deadline) -> Result<(), Error> {
        self.prepare(until)?;
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether CPU and NPU see the same bytes.
    pub(crate) fn is_synced(&self) -> bool {
        !self.stale.load(Ordering::Acquire) && !self.dirty.load(Ordering::Acquire)
    }

    /// A job is going to write it, or may still do.
    pub(crate) fn note_writer(&self) {
        self.stale.store(true, Ordering::Release);
    }

    /// FINI_BO, unless the NPU sees all that the CPU has written.
    pub(crate) fn give_back(&self) -> Result<(), Error> {
        if self.dirty.load(Ordering::Acquire) {
            self.device().fini(self.handle(), self.len())?;
            self.dirty.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// The mapping, for the guards.
    pub(crate) fn memory(&self) -> &dyn MappedMemory {
        &*self.memory
    }
}

/// A buffer object that the CPU no longer writes. Clones share it; jobs may
/// only read it.
#[derive(Clone, Debug)]
pub struct FrozenBo(Arc<Bo>);

impl FrozenBo {
    /// Where the NPU sees it, through the file that made it.
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.0.iova()
    }

    /// Length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The file that it belongs to.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.0.device()
    }

    /// Its GEM handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// The buffer object itself, to be written again; this, if another clone or
    /// a job still has it.
    ///
    /// # Errors
    /// The frozen buffer object itself, if it has other owners.
    pub fn thaw(self) -> Result<Bo, Self> {
        Arc::try_unwrap(self.0).map_err(Self)
    }

    /// The buffer object itself, to be written; `None` while another clone or a job
    /// has it.
    #[must_use]
    pub fn unshared(&mut self) -> Option<&mut Bo> {
        Arc::get_mut(&mut self.0)
    }

    /// The buffer object that jobs and the CPU read.
    pub(crate) fn bo(&self) -> &Bo {
        &self.0
    }
}
