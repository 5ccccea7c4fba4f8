// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model's open files as `rocket-uapi`'s [`FileOperations`].

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocket_uapi::{
    Caller, DeviceInfo, Errno, Error, FileOperations, MapRequest, MappedMemory,
    SharedFileOperations, device_info, sys,
};
use rustix::event::PollFlags;
use rustix::fs::SeekFrom;

use crate::base::bugs::Bug;
use crate::files::drm_file::DrmFile;
use crate::files::shared_file::SharedFile;

/// [`DeviceInfo::name`] of the model.
const MODEL_NAME: &str = "software model";

// SAFETY: the driver half gives each handle and address once while the BO lives,
// and translates an address to the BO's own pages, which are zeroed when made.
// PREP_BO waits for the fences of the jobs that write the BO; they are signalled
// after the core has ended the job. A mapping keeps its object. Within this process
// the model writes it only for jobs, that is as the NPU.
unsafe impl FileOperations for DrmFile {
    fn info(&self) -> DeviceInfo {
        let cores = self.driver().scheduler.cores() as u32;
        device_info(self, MODEL_NAME.to_owned(), true, cores)
    }

    fn settle(&self) -> Duration {
        let options = &self.driver().options;
        if options.bugs.contains(&Bug::UseAfterClose) {
            options.driver.free_delay
        } else {
            Duration::ZERO
        }
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        self.ioctl(request, arg, caller)
    }

    fn mmap(&self, request: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno> {
        Ok(Box::new(self.mmap(request)?))
    }

    /// Maps the pages that the NPU side uses too, so the host fills its page tables
    /// once.
    fn map_bo(&self, bo: &sys::CreateBo, _: usize) -> Result<Box<dyn MappedMemory>, Errno> {
        Ok(Box::new(self.map_handle(bo.handle)?))
    }

    /// A device without mode setting has no events, unless the kernel is down.
    fn poll(&self) -> Result<i16, Errno> {
        Ok(match self.check_device() {
            Ok(()) => 0,
            Err(_) => (PollFlags::HUP | PollFlags::ERR).bits() as i16,
        })
    }

    fn read(&self, _: &mut [u8]) -> Result<usize, Errno> {
        self.check_device()?;
        Err(Errno::AGAIN)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        Ok(Arc::new(self.reopen()))
    }

    fn shared_files(&self) -> Arc<dyn SharedFileOperations> {
        Arc::new(ModelFiles)
    }

    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        self.check_device()?;
        let object = self.lookup(handle).ok_or(Errno::NOENT)?;
        // The model knows it also for a job that has ended by now.
        Ok(object.reservation.was_accepted())
    }

    fn was_killed(&self, handle: u32, _: Instant) -> Option<bool> {
        // The host's clock says nothing about jobs in modelled time.
        Some(self.lookup(handle)?.reservation.was_killed())
    }

    fn core_time(&self, handle: u32) -> Option<Duration> {
        self.lookup(handle)?.core_time()
    }
}

/// The operations on the model's dma-bufs and sync_files.
#[derive(Debug)]
struct ModelFiles;

/// The model's file behind a descriptor, else the error `otherwise`, which the host
/// returns for other files.
fn file(fd: BorrowedFd<'_>, otherwise: Errno) -> Result<SharedFile, Errno> {
    SharedFile::of(fd.as_raw_fd())?.ok_or(otherwise)
}

// SAFETY: as for `DrmFile`; a dma-buf's file is sealed against shrinking.
unsafe impl SharedFileOperations for ModelFiles {
    unsafe fn ioctl(
        &self,
        fd: BorrowedFd<'_>,
        request: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        file(fd, Errno::NOTTY)?.ioctl(request, arg, caller)
    }

    fn seek(&self, fd: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        file(fd, Errno::SPIPE)?.seek(to)
    }

    fn mmap(
        &self,
        fd: BorrowedFd<'_>,
        request: &MapRequest,
    ) -> Result<Box<dyn MappedMemory>, Errno> {
        let file = file(fd, Errno::NODEV)?;
        Ok(Box::new(file.mmap(request)?))
    }
}
