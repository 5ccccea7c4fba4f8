// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the types of this crate ask of a device. [`crate::IoctlBackend`] does it
//! by ioctls, on whatever answers them.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rknpu_regcmd::Iova;

use crate::error::{Call, Error};
use crate::mapped::MappedMemory;
use crate::raw::RawDevice;
use crate::shared_files::SharedFiles;
use crate::units::{ByteLen, Deadline, Handle};

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
    pub(crate) fn close(self, backend: &dyn Backend) {
        let handle = self.handle;
        drop(self.memory);
        if let Err(error) = backend.close_bo(handle) {
            tracing::warn!(%handle, %error, "what belongs to jobs could not be closed");
        }
    }
}

/// One program to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawTask {
    /// Where its command words are; 16-byte aligned.
    pub regcmd: Iova,
    /// Its length, 64-bit words.
    pub words: u32,
}

/// Programs that run one after another on one core, with one fence.
#[derive(Clone, Copy, Debug)]
pub struct RawJob<'a> {
    /// The programs, in the order in which they run.
    pub tasks: &'a [RawTask],
    /// BOs that the job only reads, each once.
    pub reads: &'a [Handle],
    /// BOs that the job writes (and may read), each once, none also in
    /// `reads`.
    pub writes: &'a [Handle],
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The node's path, or what stands in for it.
    pub name: String,
    /// The DRM driver's name.
    pub driver: String,
    /// The DRM driver's version: major, minor, patch level.
    pub version: (i32, i32, i32),
    /// The DRM driver's description.
    pub description: String,
    /// Whether this is software.
    pub is_model: bool,
    /// NPU cores; the mainline uAPI does not tell, so for a kernel device this
    /// is what the chip has.
    pub cores: u32,
}

/// One open file of a device.
///
/// Addresses and handles belong to the file. Nothing here is checked beyond
/// what the driver checks: [`crate::Device`] and its types are the interface
/// for programs.
///
/// # Safety
/// The guards of this crate make slices of BOs on the word of a backend, so it
/// keeps it: the handle of each open BO is unique in the file; `iova` is where
/// the NPU sees exactly the pages of `memory`; when `prep_bo` returns success no
/// submitted job that lists the BO as written is still running.
pub unsafe trait Backend: fmt::Debug + Send + Sync {
    /// What the device says of itself.
    fn info(&self) -> DeviceInfo;

    /// CREATE_BO and mmap: zeroed memory.
    ///
    /// # Errors
    /// Out of memory, addresses or file descriptors; device gone.
    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error>;

    /// GEM_CLOSE. The memory should be unmapped by now.
    ///
    /// # Errors
    /// When the file has no such handle.
    fn close_bo(&self, handle: Handle) -> Result<(), Error>;

    /// PREP_BO: waits until no job writes the BO, and gives it to the CPU.
    ///
    /// # Errors
    /// [`Error::TimedOut`] at the deadline; an unknown handle.
    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error>;

    /// FINI_BO: gives the BO to the NPU.
    ///
    /// # Errors
    /// When the file has no such handle.
    fn fini_bo(&self, handle: Handle) -> Result<(), Error>;

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
    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error>;

    /// PRIME export: a dma-buf of the BO.
    ///
    /// # Errors
    /// An unknown handle; no file descriptor left.
    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error>;

    /// Whether the driver is known to have taken a job that lists the BO as
    /// written. Asked once, right after SUBMIT, when all earlier jobs that list
    /// it have ended. Where it is not, the job may have ended already, or there
    /// may never have been one.
    ///
    /// # Errors
    /// As [`Backend::prep_bo`].
    fn was_accepted(&self, handle: Handle) -> Result<bool, Error> {
        match self.prep_bo(handle, Deadline::NOW) {
            Ok(()) => Ok(false),
            Err(Error::TimedOut { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether the driver killed the job that last listed the BO as written: one
    /// that it got after `since`, and that has ended. `None` where that cannot be
    /// told. It says `Some(false)` of a job that it dropped.
    fn was_killed(&self, handle: Handle, since: Instant) -> Option<bool>;

    /// PRIME import: the handle of a dma-buf of another file. One that this
    /// file has already is given again, without a reference of its own.
    ///
    /// # Errors
    /// A dma-buf of another device, no dma-buf; the backend has no such
    /// function.
    fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let _ = dma_buf;
        let call = Call::PrimeImport;
        Err(Error::Unsupported { call })
    }

    /// The memory of a dma-buf that [`Backend::import_bo`] took, all of it,
    /// readable and writable. Others may change it at any time.
    ///
    /// # Errors
    /// No dma-buf, or one that cannot be written; out of memory; the backend
    /// has no such function.
    fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn MappedMemory>, Error> {
        let _ = dma_buf;
        Err(Error::Unsupported { call: Call::Mmap })
    }

    /// What dma-bufs and sync_files answer, where there are any.
    fn shared_files(&self) -> Option<SharedFiles> {
        None
    }

    /// Opens the same device once more: a file with its own addresses and its
    /// own place in the queue for cores.
    ///
    /// # Errors
    /// As opening it the first time.
    fn reopen(&self) -> Result<Arc<dyn Backend>, Error>;

    /// How long after the last job's end the file may be closed. Kernels of
    /// today drop a finished job's BO references a little later, into freed
    /// memory if the file is gone (a use after free in `rocket_gem.c`).
    fn settle(&self) -> Duration;

    /// The door for driver tests, where there is one.
    fn raw(&self) -> Option<&RawDevice> {
        None
    }
}
