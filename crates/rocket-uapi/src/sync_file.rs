// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sync files: fences that can be held, passed on and waited for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Errno;
use crate::calls::{EXPORT_FLAGS, export};
use crate::error::Error;
use crate::fences::{BufferAccess, FenceStatus, SyncFileInfo};
use crate::file::FileOperations;
use crate::node::KernelFiles;
use crate::shared_files::SharedFiles;
use crate::units::{self, Deadline};

/// A sync_file: fences for the ends of jobs, of this or any other device.
///
/// Its descriptor polls as readable once all those jobs have ended, for event loops.
/// [`SyncFile::status`] reports how they ended. Neither proves that a job of the NPU ran;
/// [`crate::PendingJob::wait`] does.
#[derive(Debug)]
pub struct SyncFile {
    fd: OwnedFd,
    files: SharedFiles,
}

impl SyncFile {
    pub(crate) fn new(fd: OwnedFd, files: SharedFiles) -> Self {
        Self { fd, files }
    }

    /// Name and fences of the sync_file, from the kernel.
    ///
    /// # Errors
    /// The descriptor belongs to a file of another kind.
    pub fn info(&self) -> Result<SyncFileInfo, Error> {
        self.files.info(self.as_fd())
    }

    /// State of all fences together: active while any is active, then failed if any job was
    /// killed.
    ///
    /// This reads each fence separately: for several fences as one the kernel loses errors,
    /// unless somebody waited in time.
    ///
    /// # Errors
    /// As [`SyncFile::info`].
    pub fn status(&self) -> Result<FenceStatus, Error> {
        Ok(self.info()?.status())
    }

    /// A sync_file of the fences that are still active in this and `other`. It leaves out
    /// ended jobs, even killed ones.
    ///
    /// # Errors
    /// `other` belongs to a device of another kind; no file descriptor left.
    pub fn merge(&self, name: &str, other: &Self) -> Result<Self, Error> {
        let merged = self.files.merge(name, self.as_fd(), other.as_fd())?;
        Ok(Self::new(merged, self.files.clone()))
    }

    /// Waits until all its jobs have ended, and returns how.
    ///
    /// # Errors
    /// [`Error::FenceTimedOut`] at the deadline.
    pub fn wait(&self, until: Deadline) -> Result<FenceStatus, Error> {
        loop {
            let left = until.remaining();
            // A wait beyond the range of Timespec has no timeout.
            let timeout = Timespec::try_from(left)
                .ok()
                .filter(|_| until != Deadline::FOREVER);
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) if until.has_passed() => return Err(Error::FenceTimedOut),
                // poll returned early, or a signal handler ran.
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if fds[0].revents().contains(PollFlags::IN) => return self.status(),
                Ok(_) => return Err(Error::of("poll", None, Errno::BADF)),
                Err(errno) => return Err(Error::of("poll", None, errno)),
            }
        }
    }
}

/// A sync_file of the kernel, from any driver. Use [`crate::Device::adopt_sync_file`] for
/// one of a device without a kernel behind it.
impl From<OwnedFd> for SyncFile {
    fn from(fd: OwnedFd) -> Self {
        Self::new(fd, SharedFiles::new(Arc::new(KernelFiles)))
    }
}

impl AsFd for SyncFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns a sync_file of the jobs that write a BO. It reports how they end, which PREP_BO
/// does not. The kernel leaves out jobs that have ended.
///
/// # Errors
/// An unknown handle; no file descriptor left; no dma-bufs on this device.
pub fn write_fence<F: FileOperations + ?Sized>(file: &F, handle: u32) -> Result<SyncFile, Error> {
    let refused = |errno| Error::of("PRIME_HANDLE_TO_FD", units::handle(handle), errno);
    let dma_buf = export(file, handle, EXPORT_FLAGS).map_err(refused)?;
    let files = SharedFiles::new(file.shared_files());
    let fence = files.export_sync_file(dma_buf.as_fd(), BufferAccess::Read)?;
    Ok(SyncFile::new(fence, files))
}
