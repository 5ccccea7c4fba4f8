// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects: memory that CPU and NPU share.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::Iova;

use crate::access::{CpuRead, CpuWrite};
use crate::backend::{BoMemory, RawBo};
use crate::device::Device;
use crate::error::Error;
use crate::handles::GemHandle;
use crate::shared::DmaBuf;
use crate::sharing::Access;
use crate::sync_file::SyncFile;
use crate::units::{ByteLen, Deadline, Handle};

/// One past the last address that the NPU can use.
const IOVA_END: u64 = 1 << 32;

/// A buffer object with a unique owner.
///
/// The CPU reaches its bytes through guards only: [`Bo::read`] and
/// [`Bo::write`] take it from the NPU (PREP_BO), dropping the guard gives it
/// back (FINI_BO). A job takes the `Bo` itself, so that no guard can exist
/// while the NPU may touch it. PREP and FINI work on the whole object: make it
/// no larger than what you use, and for double buffering take two.
///
/// Dropping it unmaps the memory and closes the handle.
#[derive(Debug)]
pub struct Bo {
    // Dropped in this order, which the driver needs (docs/uapi.md): munmap,
    // GEM_CLOSE, and with the `Device` inside perhaps the file.
    memory: Box<dyn BoMemory>,
    gem: GemHandle,
    iova: Iova,
    /// Whether the CPU has it, by a PREP_BO that no FINI_BO followed.
    prepared: AtomicBool,
}

impl Bo {
    /// Takes what the backend made, and checks it; on an error it is closed.
    pub(crate) fn new(device: &Device, raw: RawBo, len: ByteLen) -> Result<Self, Error> {
        let bo = Self {
            memory: raw.memory,
            gem: GemHandle::new(device, raw.handle),
            iova: raw.iova,
            prepared: AtomicBool::new(false),
        };
        if bo.len() < len.get() {
            return Err(Error::MappingTooShort {
                handle: raw.handle,
                mapped: bo.len(),
                len,
            });
        }
        if u64::from(raw.iova.0) + bo.len() as u64 > IOVA_END {
            return Err(Error::AddressTooHigh {
                address: u64::from(raw.iova.0),
            });
        }
        Ok(bo)
    }

    /// Where the NPU sees it, through the file that made it.
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Length in bytes: what was asked for, rounded up to pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has no bytes: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
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

    /// Lets the CPU read it.
    ///
    /// # Errors
    /// When PREP_BO fails, or a job outside this crate's knowledge still
    /// writes it at the deadline.
    pub fn read(&self, until: Deadline) -> Result<CpuRead<'_>, Error> {
        self.prepare(until)?;
        Ok(CpuRead::new(self))
    }

    /// Lets the CPU read and write it.
    ///
    /// # Errors
    /// As [`Bo::read`].
    pub fn write(&mut self, until: Deadline) -> Result<CpuWrite<'_>, Error> {
        self.prepare(until)?;
        Ok(CpuWrite::new(self))
    }

    /// Makes it read-only and shareable: weights, programs.
    #[must_use]
    pub fn freeze(self) -> FrozenBo {
        FrozenBo(Arc::new(self))
    }

    /// Exports it as a dma-buf for others (PRIME).
    ///
    /// The dma-buf keeps the object and its file open: the driver's file must
    /// outlive exported objects (kernel bug, see docs/uapi.md).
    ///
    /// # Errors
    /// When the driver refuses, or there is no file descriptor left.
    pub fn export(self) -> Result<DmaBuf, (Error, Self)> {
        match self.device().backend().export_bo(self.handle()) {
            Ok(fd) => Ok(DmaBuf::new(self, fd)),
            Err(error) => Err((error, self)),
        }
    }

    /// What an access would have to wait for now.
    ///
    /// # Errors
    /// The device has no sync_files; no file descriptor left.
    pub fn fence(&self, access: Access) -> Result<SyncFile, Error> {
        let files = self.device().sharing()?;
        let dma_buf = self.device().backend().export_bo(self.handle())?;
        let fd = files.export_sync_file(dma_buf.as_fd(), access)?;
        Ok(SyncFile::new(fd, files))
    }

    /// Has later jobs that write it wait for `fence`, as for one who reads it.
    ///
    /// There is no such function for one who writes it: a job's own fence is
    /// the proof that the job was accepted, and must stay the only one of its
    /// kind. [`crate::SharedBuffer::add_fence`] has it, for buffers that prove
    /// nothing.
    ///
    /// # Errors
    /// The device has no sync_files, or none of this kind.
    pub fn add_reader(&self, fence: &SyncFile) -> Result<(), Error> {
        let files = self.device().sharing()?;
        let dma_buf = self.device().backend().export_bo(self.handle())?;
        files.import_sync_file(dma_buf.as_fd(), Access::Read, fence.as_fd())
    }

    /// PREP_BO, unless the CPU has the object already.
    pub(crate) fn prepare(&self, until: Deadline) -> Result<(), Error> {
        if !self.prepared.load(Ordering::Acquire) {
            self.device().backend().prep_bo(self.handle(), until)?;
            self.prepared.store(true, Ordering::Release);
            self.device().note_wait();
        }
        Ok(())
    }

    /// Gives it to the NPU if the CPU still has it: a wait for a job takes it,
    /// and so does a guard that was forgotten instead of dropped.
    pub(crate) fn give_back(&self) -> Result<(), Error> {
        if self.prepared.load(Ordering::Acquire) {
            self.finish()?;
        }
        Ok(())
    }

    /// FINI_BO.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.prepared.store(false, Ordering::Release);
        self.device().backend().fini_bo(self.handle())
    }

    /// The mapping, for the guards.
    pub(crate) fn memory(&self) -> &dyn BoMemory {
        &*self.memory
    }

    /// The offset of the bytes `start..end` of the NPU's addresses, if all of
    /// them are of this object.
    pub(crate) fn offset_of(&self, start: u64, end: u64) -> Option<usize> {
        let base = u64::from(self.iova.0);
        let inside = base <= start && start <= end && end <= base + self.len() as u64;
        usize::try_from(start.checked_sub(base)?)
            .ok()
            .filter(|_| inside)
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
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
    /// What it was called with.
    pub fn thaw(self) -> Result<Bo, Self> {
        Arc::try_unwrap(self.0).map_err(Self)
    }

    /// See [`Bo::give_back`].
    pub(crate) fn give_back(&self) -> Result<(), Error> {
        self.0.give_back()
    }

    /// Lets the CPU read it, also while jobs do.
    ///
    /// # Errors
    /// As [`Bo::read`].
    pub fn read(&self, until: Deadline) -> Result<CpuRead<'_>, Error> {
        self.0.read(until)
    }
}
