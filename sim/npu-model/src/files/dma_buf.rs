// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-bufs: the file operations of an exported buffer object (Linux,
//! drivers/dma-buf/dma-buf.c).
//!
//! The descriptor is the memfd behind the object, opened anew. The exported open
//! file holds a lock (flock belongs to the open file and ends with its last
//! descriptor). The model tries to take that lock, to check whether a copy of the
//! descriptor is still open in any process.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rocket_uapi::{Caller, Deadline, MapRequest, sys};
use rustix::event::PollFlags;
use rustix::fs::{FlockOperation, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::base::abi;
use crate::base::memory::PAGE_BYTES;
use crate::files::shared_file::{
    self, SharedFile, SharedFileKind, copy_in, copy_out, file_id, open_anew,
};
use crate::files::sync_file::ModelSyncFile;
use crate::objects::gem::GemObject;
use crate::objects::mapping::Mapping;
use crate::objects::resv::Usage;

/// An exported buffer object, as long as a descriptor of it is open.
#[derive(Debug)]
pub(crate) struct ModelDmaBuf {
    object: Arc<GemObject>,
    writable: bool,
}

impl ModelDmaBuf {
    /// Makes a readable file descriptor of `object`. It is also writable if the
    /// first export asked for that.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for heap pages, else the errors of opening a file (`EMFILE`,
    /// `ENFILE`, `ENOMEM`).
    pub(crate) fn export(object: &Arc<GemObject>, writable: bool) -> Result<OwnedFd, Errno> {
        let pages = object.pages.make_file()?;
        // Hold the table's lock throughout, since `is_open` briefly takes the file
        // lock.
        shared_file::install(|files| {
            let writable = object.mark_exported(writable);
            let file = open_anew(pages, writable)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
            // A second export returns the same dma-buf.
            files.entry(file_id(file.as_raw_fd())?).or_insert_with(|| {
                Arc::new(Self {
                    object: Arc::clone(object),
                    writable,
                })
            });
            Ok(file)
        })
    }

    /// DMA_BUF_IOCTL_SYNC. The driver's dma-bufs have no hooks for it. So a start
    /// only waits, an end does nothing, and neither touches a cache.
    fn sync(&self, flags: u64, user: &dyn Caller) -> Result<(), Errno> {
        let flags = u32::try_from(flags).map_err(|_| Errno::INVAL)?;
        let end = flags & sys::DMA_BUF_SYNC_END != 0;
        let writes = writes(flags & !sys::DMA_BUF_SYNC_END)?;
        if end {
            return Ok(());
        }
        let usage = Usage::to_wait_for(writes);
        let reservation = &self.object.reservation;
        reservation.wait(usage, Deadline::FOREVER, user.wake())
    }

    /// A sync_file of the fences that a reader has to wait for, or a writer if
    /// `flags` include writing.
    ///
    /// # Errors
    /// `EINVAL` for other flags or none; `EMFILE` and the like if no descriptor is
    /// left.
    fn export_sync_file(&self, flags: u32) -> Result<OwnedFd, Errno> {
        let usage = Usage::to_wait_for(writes(flags)?);
        ModelSyncFile::create(self.object.reservation.export(usage), Vec::new())
    }

    /// Adds the fences of a sync_file, as a reader's or a writer's.
    fn import_sync_file(
        &self,
        argument: sys::ImportSyncFile,
        user: &dyn Caller,
    ) -> Result<(), Errno> {
        let usage = if writes(argument.flags)? {
            Usage::Write
        } else {
            Usage::Read
        };
        let file = SharedFile::of_caller(argument.fd, user).ok_or(Errno::INVAL)?;
        let exported = file.0.exported().ok_or(Errno::INVAL)?;
        for fence in &exported.fences {
            self.object.reservation.add(usage, fence);
        }
        self.object.reservation.name(usage, &exported.named);
        Ok(())
    }

    /// Number of bytes that mmap would map. Every part in range shows the object
    /// from its start, because the fault handler counts pages from the start of the
    /// mapping (drm_gem_shmem_fault).
    ///
    /// # Errors
    /// In the kernel's order. mmap itself refuses a wrong length or offset, and
    /// with `EACCES` a writable shared mapping of a file that is not writable. The
    /// driver (dma_buf_mmap_internal, drm_gem_shmem_mmap) refuses a range beyond
    /// the end and a private mapping.
    fn mappable(&self, request: &MapRequest) -> Result<usize, Errno> {
        let &MapRequest {
            offset,
            len,
            prot,
            flags,
        } = request;
        if len == 0 || !offset.is_multiple_of(PAGE_BYTES as u64) {
            return Err(Errno::INVAL);
        }
        let whole = len
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or(Errno::NOMEM)?;
        let end = offset.saturating_add(whole as u64);
        let is_shared = flags.contains(MapFlags::SHARED);
        if is_shared && prot.contains(ProtFlags::WRITE) && !self.writable {
            return Err(Errno::ACCESS);
        }
        if end > self.object.pages.len() as u64 || !is_shared {
            return Err(Errno::INVAL);
        }
        Ok(whole)
    }
}

impl SharedFileKind for ModelDmaBuf {
    /// Whether an exported descriptor is open anywhere.
    fn is_open(&self) -> bool {
        let Some(pages) = self.object.pages.file() else {
            return false;
        };
        match rustix::fs::flock(pages, FlockOperation::NonBlockingLockExclusive) {
            Err(_) => true,
            Ok(()) => {
                // No other process has the file open. Unlock it, or the next export
                // could not take its lock.
                let _ = rustix::fs::flock(pages, FlockOperation::Unlock);
                false
            }
        }
    }

    fn ioctl(&self, request: u32, arg: u64, user: &dyn Caller) -> Result<i32, Errno> {
        match request {
            sys::DMA_BUF_SYNC => self.sync(copy_in(user, arg)?, user)?,
            abi::DMA_BUF_SET_NAME_A | sys::DMA_BUF_SET_NAME => check_name(arg, user)?,
            sys::EXPORT_SYNC_FILE => {
                let mut argument: sys::ExportSyncFile = copy_in(user, arg)?;
                let sync_file = self.export_sync_file(argument.flags)?;
                user.install(sync_file, true, &mut |number| {
                    argument.fd = number;
                    copy_out(user, arg, &argument)
                })?;
            }
            sys::IMPORT_SYNC_FILE => {
                let argument: sys::ImportSyncFile = copy_in(user, arg)?;
                self.import_sync_file(argument, user)?;
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    }

    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        match to {
            SeekFrom::Start(0) => Ok(0),
            SeekFrom::End(0) => Ok(self.object.pages.len() as u64),
            _ => Err(Errno::INVAL),
        }
    }

    fn poll(&self) -> PollFlags {
        let ready = |events, writes| {
            let usage = Usage::to_wait_for(writes);
            if self.object.reservation.active(usage).is_empty() {
                events
            } else {
                PollFlags::empty()
            }
        };
        ready(PollFlags::IN, false) | ready(PollFlags::OUT, true)
    }

    fn mmap(&self, request: &MapRequest) -> Result<Mapping, Errno> {
        let whole = self.mappable(request)?;
        Mapping::own(&self.object, whole, request.len, request.prot, None)
    }

    fn check_mmap(&self, request: &MapRequest) -> Result<(), Errno> {
        self.mappable(request).map(drop)
    }

    fn object(&self) -> Option<&Arc<GemObject>> {
        Some(&self.object)
    }
}

/// Checks a name, which no client sees.
///
/// # Errors
/// `EINVAL` for one that is too long, `EFAULT` for one that cannot be read.
fn check_name(at: u64, user: &dyn Caller) -> Result<(), Errno> {
    for index in 0..sys::DMA_BUF_NAME_BYTES as u64 {
        let byte: u8 = copy_in(user, at.wrapping_add(index))?;
        if byte == 0 {
            return Ok(());
        }
    }
    Err(Errno::INVAL)
}

/// Whether the flags of an access include writing.
///
/// # Errors
/// `EINVAL` for unknown flags, and for none.
fn writes(flags: u32) -> Result<bool, Errno> {
    if flags & !abi::DMA_BUF_SYNC_RW != 0 || flags == 0 {
        return Err(Errno::INVAL);
    }
    Ok(flags & sys::DMA_BUF_SYNC_WRITE != 0)
}
