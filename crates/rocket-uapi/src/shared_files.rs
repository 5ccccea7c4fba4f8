// SPDX-License-Identifier: MIT OR Apache-2.0
//! Typed calls on dma-bufs and sync_files.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::SeekFrom;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::arena::Arena;
use crate::caller::Caller;
use crate::calls::{PLAIN_REQUESTS, restarted};
use crate::error::Error;
use crate::fences::{BufferAccess, FenceInfo, SyncFileInfo, text};
use crate::file::{MapRequest, MappedMemory, SharedFileOperations};
use crate::{Errno, sys};

/// Typed calls on dma-bufs and sync_files, which belong to no device.
#[derive(Clone, Debug)]
pub(crate) struct SharedFiles(Arc<dyn SharedFileOperations>);

/// Room for fences in the first SYNC_IOC_FILE_INFO; most sync_files have no more.
const USUAL_FENCES: usize = 4;

fn flags(access: BufferAccess) -> u32 {
    match access {
        BufferAccess::Read => sys::DMA_BUF_SYNC_READ,
        BufferAccess::Write => sys::DMA_BUF_SYNC_WRITE,
    }
}

impl SharedFiles {
    pub(crate) fn new(files: Arc<dyn SharedFileOperations>) -> Self {
        Self(files)
    }

    /// Makes an ioctl, and restarts it when a signal handler interrupts it.
    ///
    /// # Safety
    /// The addresses in `arg` belong to `arena`.
    unsafe fn ioctl<T: FromBytes + IntoBytes + Immutable>(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: &mut T,
        arena: &Arena,
    ) -> Result<(), Errno> {
        // The driver reads and writes as many bytes as the request number states.
        if sys::arg_len(request) != size_of::<T>() {
            return Err(Errno::INVAL);
        }
        let at = arena.push(arg.as_bytes());
        // SAFETY: `arena` outlives the call, its memory may be read and written, and it has
        // as many bytes at `at` as the request number states.
        restarted(|| unsafe { self.0.ioctl(file, request, at, arena) })?;
        arena.read(at, arg.as_mut_bytes())
    }

    /// Makes an ioctl whose argument holds no address.
    fn plain<T: FromBytes + IntoBytes + Immutable>(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: &mut T,
    ) -> Result<(), Errno> {
        if !PLAIN_REQUESTS.contains(&request) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the driver follows no address in the arguments of `PLAIN_REQUESTS`.
        unsafe { self.ioctl(file, request, arg, &Arena::new()) }
    }

    /// SYNC_IOC_FILE_INFO with room for `room` fences.
    fn ask(
        &self,
        sync_file: BorrowedFd<'_>,
        room: usize,
    ) -> Result<(sys::SyncFileInfo, Vec<sys::SyncFenceInfo>), Errno> {
        let arena = Arena::new();
        let mut fences = vec![sys::SyncFenceInfo::default(); room];
        let array = arena.push(fences.as_bytes());
        let mut info = sys::SyncFileInfo {
            num_fences: u32::try_from(room).map_err(|_| Errno::INVAL)?,
            sync_fence_info: array,
            ..sys::SyncFileInfo::default()
        };
        // SAFETY: the address is that of `num_fences` structures in `arena`; if there are
        // none, the kernel does not follow it.
        unsafe { self.ioctl(sync_file, sys::SYNC_FILE_INFO, &mut info, &arena) }?;
        arena.read(array, fences.as_mut_bytes())?;
        fences.truncate(info.num_fences as usize);
        Ok((info, fences))
    }

    /// EXPORT_SYNC_FILE: returns a sync_file of the fences that an access has to wait for
    /// now.
    pub(crate) fn export_sync_file(
        &self,
        dma_buf: BorrowedFd<'_>,
        access: BufferAccess,
    ) -> Result<OwnedFd, Error> {
        let mut fence = sys::ExportSyncFile {
            flags: flags(access),
            fd: -1,
        };
        self.plain(dma_buf, sys::EXPORT_SYNC_FILE, &mut fence)
            .map_err(|errno| Error::of("EXPORT_SYNC_FILE", None, errno))?;
        // SAFETY: EXPORT_SYNC_FILE succeeded, so `fd` is a new descriptor of this process
        // without another owner. (The request's letter is dma-buf's, so no other file of
        // the kernel accepts it.)
        Ok(unsafe { OwnedFd::from_raw_fd(fence.fd) })
    }

    /// IMPORT_SYNC_FILE: makes later jobs wait for the fences as for those of an access.
    pub(crate) fn import_sync_file(
        &self,
        dma_buf: BorrowedFd<'_>,
        access: BufferAccess,
        sync_file: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let mut fence = sys::ImportSyncFile {
            flags: flags(access),
            fd: sync_file.as_raw_fd(),
        };
        self.plain(dma_buf, sys::IMPORT_SYNC_FILE, &mut fence)
            .map_err(|errno| Error::of("IMPORT_SYNC_FILE", None, errno))
    }

    /// SYNC_IOC_MERGE: returns a sync_file of the active fences of both.
    pub(crate) fn merge(
        &self,
        name: &str,
        first: BorrowedFd<'_>,
        second: BorrowedFd<'_>,
    ) -> Result<OwnedFd, Error> {
        let mut merge = sys::SyncMergeData {
            fd2: second.as_raw_fd(),
            fence: -1,
            ..sys::SyncMergeData::default()
        };
        // The last byte stays 0.
        let room = merge.name.len() - 1;
        for (target, byte) in merge.name[..room].iter_mut().zip(name.bytes()) {
            *target = byte;
        }
        self.plain(first, sys::SYNC_MERGE, &mut merge)
            .map_err(|errno| Error::of("SYNC_IOC_MERGE", None, errno))?;
        // SAFETY: as in `export_sync_file`.
        Ok(unsafe { OwnedFd::from_raw_fd(merge.fence) })
    }

    /// SYNC_IOC_FILE_INFO.
    pub(crate) fn info(&self, sync_file: BorrowedFd<'_>) -> Result<SyncFileInfo, Error> {
        let refused = |errno| Error::of("SYNC_IOC_FILE_INFO", None, errno);
        let mut asked = self.ask(sync_file, USUAL_FENCES);
        if matches!(asked, Err(Errno::INVAL)) {
            // Too little room: query the number of fences, which never changes.
            let (info, _) = self.ask(sync_file, 0).map_err(refused)?;
            asked = self.ask(sync_file, info.num_fences as usize);
        }
        let (info, fences) = asked.map_err(refused)?;
        Ok(SyncFileInfo {
            name: text(&info.name),
            fences: fences.iter().map(FenceInfo::from).collect(),
        })
    }

    /// Maps a whole dma-buf, readable and writable. The caller knows that the file is one:
    /// another file could shrink below the mapping. Others may change the memory at any
    /// time. The call moves the file's position, which nobody uses.
    pub(crate) fn map(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn MappedMemory>, Error> {
        let len = self.0.seek(dma_buf, SeekFrom::End(0));
        let len = len.map_err(|errno| Error::of("lseek", None, errno))?;
        let refused = |errno| Error::of("mmap", None, errno);
        let len = usize::try_from(len).map_err(|_| refused(Errno::NOMEM))?;
        let mapped = self.0.mmap(dma_buf, &MapRequest::shared(0, len));
        mapped.map_err(refused)
    }
}
