// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects: memory that CPU and NPU share.

use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::Iova;

use crate::calls::plain_ioctl;
use crate::device::{Device, RawBo};
use crate::error::Error;
use crate::fences::BufferAccess;
use crate::file::MappedMemory;
use crate::handles::GemHandle;
use crate::sync_file::SyncFile;
use crate::units::{self, ByteLen, Deadline, Handle};
use crate::{Errno, sys};

impl Device {
    /// Allocates a buffer object of zeroes.
    ///
    /// # Errors
    /// Out of memory, NPU addresses or file descriptors; device gone.
    pub fn alloc(&self, len: ByteLen) -> Result<Bo, Error> {
        let len = len.page_rounded();
        let mut created = sys::CreateBo {
            // Below 2 GiB, so it fits.
            size: len.get() as u32,
            ..sys::CreateBo::default()
        };
        let refused = |call, handle, errno| match errno {
            // The address allocator returns ENOSPC when it is full.
            Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory(len),
            _ => Error::of(call, handle, errno),
        };
        plain_ioctl(self.file(), sys::CREATE_BO, &mut created)
            .map_err(|errno| refused("CREATE_BO", None, errno))?;
        let handle = units::handle(created.handle)
            .ok_or_else(|| Error::of("CREATE_BO", None, Errno::BADMSG))?;
        let gem = GemHandle::new(self, handle);
        let address = created.dma_address;
        let iova = u32::try_from(address).map_err(|_| Error::AddressTooHigh { address })?;
        // The kernel wrote its zeroes back when it mapped the pages for the NPU
        // (`drm_gem_shmem_get_pages_sgt`).
        let memory = self
            .file()
            .map_bo(&created, len.get())
            .map_err(|errno| refused("mmap", Some(handle), errno))?;
        let mapped = memory.len();
        if mapped < len.get() {
            return Err(Error::MappingTooShort {
                handle,
                mapped,
                len,
            });
        }
        if address + mapped as u64 > Iova::END {
            return Err(Error::AddressTooHigh { address });
        }
        Ok(Bo::new(memory, gem, Iova(iova)))
    }
}

/// A buffer object with a unique owner.
///
/// The CPU accesses its bytes only through guards. [`Bo::read`] and [`Bo::write`] take the
/// object from the NPU (PREP_BO); dropping the guard gives it back (FINI_BO). A job takes
/// the `Bo` itself, so no guard can exist while the NPU may access it.
///
/// PREP_BO and FINI_BO maintain the caches of the whole object: allocate no more than you
/// use, and use two objects for double buffering. Each call is made only where needed:
/// PREP_BO if a job may have written since the last one, FINI_BO if the CPU may have.
/// [`Device::cache_traffic`] counts their bytes.
///
/// Dropping it unmaps the memory and closes the handle.
#[derive(Debug)]
pub struct Bo {
    // Drop order, which the driver needs (docs/uapi.md): munmap, GEM_CLOSE, and with the
    // last `Device` the file.
    memory: Box<dyn MappedMemory>,
    gem: GemHandle,
    iova: Iova,
    /// Whether a job may have written the object since the last PREP_BO, so that the CPU's
    /// caches may hold older bytes.
    stale: AtomicBool,
    /// Whether the CPU may have written the object since the last FINI_BO, so that the
    /// newest bytes may be only in its caches.
    dirty: AtomicBool,
}

impl Bo {
    /// A BO that neither the CPU nor a job has written since it was synced.
    fn new(memory: Box<dyn MappedMemory>, gem: GemHandle, iova: Iova) -> Self {
        Self {
            memory,
            gem,
            iova,
            stale: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
        }
    }

    /// Wraps a BO of [`Bo::into_raw`].
    pub(crate) fn from_raw(device: &Device, raw: RawBo) -> Self {
        Self::new(raw.memory, GemHandle::new(device, raw.handle), raw.iova)
    }

    /// Converts to a raw BO without its file, still mapped and open. The BO must be synced.
    pub(crate) fn into_raw(self) -> RawBo {
        RawBo {
            memory: self.memory,
            iova: self.iova,
            handle: self.gem.keep(),
        }
    }

    /// NPU address of the BO, valid in the file that made it.
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Length in bytes: the requested length rounded up to pages.
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

    /// Makes the BO read-only and shareable, for weights or programs.
    #[must_use]
    pub fn freeze(self) -> FrozenBo {
        FrozenBo(Arc::new(self))
    }

    /// A fence for all that an access would have to wait for now.
    ///
    /// This exports the object for a moment. Current kernels then require that it is closed
    /// before its file, even if the process is killed ([`Bo::export`]).
    ///
    /// # Errors
    /// The device has no sync_files; no file descriptor left.
    pub fn fence(&self, access: BufferAccess) -> Result<SyncFile, Error> {
        let files = self.device().shared_files();
        let dma_buf = self.device().export_bo(self.handle())?;
        let fd = files.export_sync_file(dma_buf.as_fd(), access)?;
        Ok(SyncFile::new(fd, files))
    }

    /// Makes later jobs that write the BO wait for `fence`, as for the fence of a reader.
    ///
    /// There is no such function for a writer's fence, because guards would wait for it
    /// without a deadline; use [`crate::DmaBuf::add_fence`]. This exports the object for a
    /// moment, as [`Bo::fence`] does.
    ///
    /// # Errors
    /// The device has no sync_files, or does not accept this kind.
    pub fn add_reader(&self, fence: &SyncFile) -> Result<(), Error> {
        let files = self.device().shared_files();
        let dma_buf = self.device().export_bo(self.handle())?;
        files.import_sync_file(dma_buf.as_fd(), BufferAccess::Read, fence.as_fd())
    }

    /// Calls PREP_BO, unless the CPU already sees all that jobs have written.
    pub(crate) fn prepare(&self, until: Deadline) -> Result<(), Error> {
        if !self.stale.load(Ordering::Acquire) && !self.device().has_raw_jobs() {
            return Ok(());
        }
        // PREP_BO discards the caches' contents, which may hold writes of a guard that was
        // forgotten.
        self.give_back()?;
        self.device().prep(self.handle(), self.len(), until)?;
        self.stale.store(false, Ordering::Release);
        self.device().note_wait();
        Ok(())
    }

    /// [`Bo::prepare`] before a write of the CPU.
    pub(crate) fn prepare_write(&self, until: Deadline) -> Result<(), Error> {
        self.prepare(until)?;
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether CPU and NPU see the same bytes.
    pub(crate) fn is_synced(&self) -> bool {
        !self.stale.load(Ordering::Acquire) && !self.dirty.load(Ordering::Acquire)
    }

    /// Notes that a job is going to write the BO, or may still write it.
    pub(crate) fn note_writer(&self) {
        self.stale.store(true, Ordering::Release);
    }

    /// Calls FINI_BO, unless the NPU already sees all that the CPU has written.
    pub(crate) fn give_back(&self) -> Result<(), Error> {
        if self.dirty.load(Ordering::Acquire) {
            self.device().fini(self.handle(), self.len())?;
            self.dirty.store(false, Ordering::Release);
        }
        Ok(())
    }

    pub(crate) fn memory(&self) -> &dyn MappedMemory {
        &*self.memory
    }
}

/// A buffer object that the CPU no longer writes. Clones share it. Jobs only read it, and
/// guards may read it at the same time. It has the methods of [`Bo`] that do not write.
#[derive(Clone, Debug)]
pub struct FrozenBo(Arc<Bo>);

impl Deref for FrozenBo {
    type Target = Bo;

    fn deref(&self) -> &Bo {
        &self.0
    }
}

impl FrozenBo {
    /// Returns the buffer object, to write it again.
    ///
    /// # Errors
    /// This frozen buffer object, if another clone or a job still has it.
    pub fn thaw(self) -> Result<Bo, Self> {
        Arc::try_unwrap(self.0).map_err(Self)
    }

    /// A mutable reference to the buffer object; `None` while another clone or a job has
    /// it.
    #[must_use]
    pub fn unshared(&mut self) -> Option<&mut Bo> {
        Arc::get_mut(&mut self.0)
    }
}
