// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects: memory that CPU and NPU share.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::Iova;

use crate::access::{CpuRead, CpuWrite};
use crate::backend::{BoMemory, RawBo};
use crate::device::Device;
use crate::error::Error;
use crate::units::{Deadline, Handle};

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
    // The order of drops matters: memory before the handle, the file last.
    memory: Option<Box<dyn BoMemory>>,
    handle: Handle,
    iova: Iova,
    device: Device,
    /// Whether the CPU has it, by a PREP_BO that no FINI_BO followed.
    prepared: AtomicBool,
}

impl Bo {
    pub(crate) fn new(device: Device, raw: RawBo) -> Result<Self, Error> {
        let bo = Self {
            memory: Some(raw.memory),
            handle: raw.handle,
            iova: raw.iova,
            device,
            prepared: AtomicBool::new(false),
        };
        let end = u64::from(raw.iova.0) + bo.len() as u64;
        if end > IOVA_END {
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
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    /// Whether it has no bytes: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file that it belongs to.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its GEM handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
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
        match self.device.backend().export_bo(self.handle) {
            Ok(fd) => Ok(DmaBuf { fd, bo: self }),
            Err(error) => Err((error, self)),
        }
    }

    /// PREP_BO, unless the CPU has the object already.
    pub(crate) fn prepare(&self, until: Deadline) -> Result<(), Error> {
        if !self.prepared.load(Ordering::Acquire) {
            self.device.backend().prep_bo(self.handle, until)?;
            self.prepared.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// FINI_BO.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.prepared.store(false, Ordering::Release);
        self.device.backend().fini_bo(self.handle)
    }

    /// The NPU may write it from here on.
    pub(crate) fn mark_busy(&self) {
        self.prepared.store(false, Ordering::Release);
    }

    pub(crate) fn memory(&self) -> Option<&dyn BoMemory> {
        self.memory.as_deref()
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        // The mapping goes first: a mapping that outlives its handle keeps
        // pages and addresses reserved.
        self.memory = None;
        if let Err(error) = self.device.backend().close_bo(self.handle) {
            tracing::warn!(handle = %self.handle, %error, "a buffer object could not be closed");
        }
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

    /// Lets the CPU read it, also while jobs do.
    ///
    /// # Errors
    /// As [`Bo::read`].
    pub fn read(&self, until: Deadline) -> Result<CpuRead<'_>, Error> {
        self.0.read(until)
    }
}

/// A buffer object that was exported as a dma-buf.
///
/// No slice of it can be had any more: others may write it.
#[derive(Debug)]
pub struct DmaBuf {
    // The dma-buf is closed before the object, and that before the file.
    fd: OwnedFd,
    bo: Bo,
}

impl DmaBuf {
    /// Where the NPU sees it, through the file that made it.
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.bo.iova()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bo.len()
    }

    /// Whether it has no bytes: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bo.is_empty()
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
