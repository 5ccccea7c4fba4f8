// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls of an open file as typed calls.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rknpu_regcmd::Iova;

use crate::calls::{EXPORT_FLAGS, export, gem_close, import, ioctl, plain_ioctl, prep_bo};
use crate::error::{Call, Error};
use crate::file::{DeviceInfo, FileOperations, MappedMemory};
use crate::raw_job::{RawJob, place};
use crate::shared_files::SharedFiles;
use crate::units::{ByteLen, Deadline, Handle};
use crate::user_memory::Arena;
use crate::{Errno, sys};

/// A new BO.
#[derive(Debug)]
pub struct RawBo {
    /// Its GEM handle in the file that made it.
    pub handle: Handle,
    /// NPU address of the BO, valid in the file that made it.
    pub iova: Iova,
    /// Its CPU mapping: whole pages, readable and writable. Only the NPU and holders of the
    /// pointer write them.
    pub memory: Box<dyn MappedMemory>,
}

impl RawBo {
    /// Unmaps and closes a BO that this crate made for its jobs.
    pub(crate) fn close(self, file: &RocketFile) {
        let handle = self.handle;
        drop(self.memory);
        if let Err(error) = file.close_bo(handle) {
            tracing::warn!(%handle, %error, "cannot close a buffer object of the witness");
        }
    }
}

/// The typed calls of an open file.
///
/// Addresses and handles belong to the file. These calls check no more than the driver
/// does. Programs should use [`crate::Device`] and its types.
#[derive(Clone, Debug)]
pub struct RocketFile {
    file: Arc<dyn FileOperations>,
    info: DeviceInfo,
}

impl RocketFile {
    /// Typed calls on `file`.
    #[must_use]
    pub fn new(file: Arc<dyn FileOperations>) -> Self {
        let info = file.info();
        Self { file, info }
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &dyn FileOperations {
        &*self.file
    }

    /// Description of the device and its driver.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// CREATE_BO and mmap: makes a BO of zeroes.
    ///
    /// # Errors
    /// Out of memory, addresses or file descriptors; device gone.
    pub fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        let mut bo = sys::CreateBo {
            // Below 2 GiB, so it fits.
            size: len.get() as u32,
            ..sys::CreateBo::default()
        };
        let refused = |call, handle, errno| match errno {
            // The address allocator returns ENOSPC when it is full.
            Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory { len },
            _ => Error::of(call, handle, errno),
        };
        plain_ioctl(self.file(), sys::CREATE_BO, &mut bo)
            .map_err(|errno| refused(Call::CreateBo, None, errno))?;
        let handle =
            Handle::new(bo.handle).ok_or_else(|| Error::of(Call::CreateBo, None, Errno::BADMSG))?;
        let map = || {
            let address = bo.dma_address;
            let iova = u32::try_from(address).map_err(|_| Error::AddressTooHigh { address })?;
            let mapped = self.file.map_bo(&bo, len.page_rounded().get());
            Ok(RawBo {
                handle,
                iova: Iova(iova),
                memory: mapped.map_err(|errno| refused(Call::Mmap, Some(handle), errno))?,
            })
        };
        map().inspect_err(|_| {
            if let Err(error) = self.close_bo(handle) {
                tracing::error!(%error, "cannot close an unusable buffer object");
            }
        })
    }

    /// GEM_CLOSE. The memory should be unmapped by now.
    ///
    /// # Errors
    /// The file has no such handle.
    pub fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        gem_close(self.file(), handle.get())
            .map_err(|errno| Error::of(Call::GemClose, Some(handle), errno))
    }

    /// PREP_BO: waits until no job writes the BO, and gives it to the CPU.
    ///
    /// # Errors
    /// [`Error::TimedOut`] at the deadline; an unknown handle.
    pub fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        prep_bo(self.file(), handle.get(), until).map_err(|errno| match errno {
            // EBUSY if the deadline had passed before the call.
            Errno::BUSY | Errno::TIMEDOUT => Error::TimedOut { handle },
            _ => Error::of(Call::PrepBo, Some(handle), errno),
        })
    }

    /// FINI_BO: gives the BO to the NPU.
    ///
    /// # Errors
    /// The file has no such handle.
    pub fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut bo = sys::FiniBo {
            handle: handle.get(),
            reserved: 0,
        };
        plain_ioctl(self.file(), sys::FINI_BO, &mut bo)
            .map(drop)
            .map_err(|errno| Error::of(Call::FiniBo, Some(handle), errno))
    }

    /// SUBMIT. Success does not mean that a job runs.
    ///
    /// # Errors
    /// The driver refuses the whole call.
    ///
    /// # Safety
    /// The NPU reads and writes any address in the command words. Until the jobs have
    /// ended: all that a program makes the NPU write lies in BOs of this file without
    /// references; all that it makes the NPU read lies in BOs that stay alive, and that
    /// this process changes by atomics at most.
    pub unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        let arena = Arena::new();
        let submitted = place(jobs, &arena).and_then(|mut submit| {
            // SAFETY: all its addresses are those of arrays in `arena`, with as many
            // elements as the counts beside them state. SUBMIT copies from them before it
            // returns. The caller promises the rest.
            unsafe { ioctl(self.file(), sys::SUBMIT, &mut submit, &arena) }
        });
        let submitted = submitted.map(drop);
        submitted.map_err(|errno| Error::of(Call::Submit, None, errno))
    }

    /// PRIME export: returns a dma-buf of the BO.
    ///
    /// # Errors
    /// An unknown handle; no file descriptor left; no dma-bufs on this device.
    pub fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        let call = Call::PrimeExport;
        export(self.file(), handle.get(), EXPORT_FLAGS).map_err(|errno| match errno {
            Errno::OPNOTSUPP => Error::Unsupported { call },
            _ => Error::of(call, Some(handle), errno),
        })
    }

    /// PRIME import: returns the handle of a dma-buf of another file. A second import of
    /// the same dma-buf returns the same handle, without another reference.
    ///
    /// # Errors
    /// A dma-buf of another device; a file that is no dma-buf.
    pub fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let refused = |errno| Error::of(Call::PrimeImport, None, errno);
        let handle = import(self.file(), dma_buf).map_err(refused)?;
        Handle::new(handle).ok_or_else(|| refused(Errno::BADMSG))
    }

    /// [`FileOperations::was_accepted`].
    ///
    /// # Errors
    /// As [`RocketFile::prep_bo`].
    pub fn was_accepted(&self, handle: Handle) -> Result<bool, Error> {
        let accepted = self.file.was_accepted(handle.get());
        accepted.map_err(|errno| Error::of(Call::PrepBo, Some(handle), errno))
    }

    /// [`FileOperations::was_killed`].
    #[must_use]
    pub fn was_killed(&self, handle: Handle, since: Instant) -> Option<bool> {
        self.file.was_killed(handle.get(), since)
    }

    /// Typed calls on the device's dma-bufs and sync_files.
    #[must_use]
    pub fn shared_files(&self) -> SharedFiles {
        SharedFiles::new(self.file.shared_files())
    }
}
