// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls of an open file as typed calls.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rknpu_regcmd::Iova;

use crate::calls::{EXPORT_FLAGS, export, gem_close, import, ioctl, plain_ioctl, prep_bo};
use crate::error::{Call, Error};
use crate::file::{DeviceInfo, FileOperations};
use crate::mapped::MappedMemory;
use crate::raw_job::{RawJob, place};
use crate::shared_files::{SharedFiles, map};
use crate::units::{ByteLen, Deadline, Handle};
use crate::user_memory::Arena;
use crate::{Errno, sys};

/// A new BO.
#[derive(Debug)]
pub struct RawBo {
    /// Its GEM handle in the file that made it.
    pub handle: Handle,
    /// Where the NPU sees it, through the file that made it.
    pub iova: Iova,
    /// The CPU's view of it: whole pages, readable and writable. Nobody but the
    /// NPU and holders of the pointer writes them.
    pub memory: Box<dyn MappedMemory>,
}

impl RawBo {
    /// Unmaps and closes what is a job's own.
    pub(crate) fn close(self, file: &RocketFile) {
        let handle = self.handle;
        drop(self.memory);
        if let Err(error) = file.close_bo(handle) {
            tracing::warn!(%handle, %error, "what belongs to jobs could not be closed");
        }
    }
}

/// The typed calls of an open file.
///
/// Addresses and handles belong to the file. Nothing here is checked beyond
/// what the driver checks: [`crate::Device`] and its types are the interface
/// for programs.
#[derive(Clone, Debug)]
pub struct RocketFile {
    file: Arc<dyn FileOperations>,
    info: DeviceInfo,
}

impl RocketFile {
    /// The calls of `file`.
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

    /// The driver and the device, as they describe themselves.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// CREATE_BO and mmap: zeroed memory.
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
            // ENOSPC is what the address allocator says when it is full.
            Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory { len },
            _ => Error::of(call, handle, errno),
        };
        plain_ioctl(self.file(), sys::CREATE_BO, &mut bo)
            .map_err(|errno| refused(Call::CreateBo, None, errno))?;
        let handle =
            Handle::new(bo.handle).ok_or_else(|| Error::of(Call::CreateBo, None, Errno::BADMSG))?;
        let made = u32::try_from(bo.dma_address)
            .map_err(|_| Error::AddressTooHigh {
                address: bo.dma_address,
            })
            .and_then(|iova| {
                let mapped = self.file.map_bo(&bo, len.page_rounded().get());
                let memory = mapped.map_err(|errno| refused(Call::Mmap, Some(handle), errno))?;
                Ok((iova, memory))
            });
        match made {
            Ok((iova, memory)) => Ok(RawBo {
                handle,
                iova: Iova(iova),
                memory,
            }),
            Err(error) => {
                if let Err(error) = self.close_bo(handle) {
                    tracing::error!(%error, "cannot close a buffer object that could not be used");
                }
                Err(error)
            }
        }
    }

    /// GEM_CLOSE. The memory should be unmapped by now.
    ///
    /// # Errors
    /// When the file has no such handle.
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
            // EBUSY where the deadline had passed before the call.
            Errno::BUSY | Errno::TIMEDOUT => Error::TimedOut { handle },
            _ => Error::of(Call::PrepBo, Some(handle), errno),
        })
    }

    /// FINI_BO: gives the BO to the NPU.
    ///
    /// # Errors
    /// When the file has no such handle.
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
    /// When the whole call is refused.
    ///
    /// # Safety
    /// The NPU reads and writes wherever the command words say. Until the jobs
    /// have ended: what a program makes the NPU write lies in BOs of this file
    /// of which no reference exists; what it makes the NPU read lies in BOs
    /// that stay alive, and that this program changes by atomics at most.
    pub unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        let arena = Arena::new();
        let submitted = place(jobs, &arena).and_then(|mut submit| {
            // SAFETY: all addresses in it are those of arrays in `arena`, with
            // as many elements as the counts beside them say; SUBMIT copies from
            // them before it returns. The rest is the caller's promise.
            unsafe { ioctl(self.file(), sys::SUBMIT, &mut submit, &arena) }
        });
        let submitted = submitted.map(drop);
        submitted.map_err(|errno| Error::of(Call::Submit, None, errno))
    }

    /// PRIME export: a dma-buf of the BO.
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

    /// PRIME import: the handle of a dma-buf of another file. One that this
    /// file has already is given again, without a reference of its own.
    ///
    /// # Errors
    /// A dma-buf of another device, no dma-buf.
    pub fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let refused = |errno| Error::of(Call::PrimeImport, None, errno);
        let handle = import(self.file(), dma_buf).map_err(refused)?;
        Handle::new(handle).ok_or_else(|| refused(Errno::BADMSG))
    }

    /// The memory of a dma-buf that [`RocketFile::import_bo`] took, all of it,
    /// readable and writable. Others may change it at any time.
    ///
    /// # Errors
    /// No dma-buf, or one that cannot be written; out of memory.
    pub fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn MappedMemory>, Error> {
        map(&*self.file.shared_files(), dma_buf)
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

    /// What dma-bufs and sync_files of the device answer.
    #[must_use]
    pub fn shared_files(&self) -> SharedFiles {
        SharedFiles::new(self.file.shared_files())
    }

    /// [`FileOperations::settle`].
    #[must_use]
    pub fn settle(&self) -> Duration {
        self.file.settle()
    }

    /// Opens the same device once more: a file with its own addresses and its
    /// own place in the queue for cores.
    ///
    /// # Errors
    /// As opening it the first time.
    pub fn reopen(&self) -> Result<Self, Error> {
        Ok(Self::new(self.file.reopen()?))
    }
}
