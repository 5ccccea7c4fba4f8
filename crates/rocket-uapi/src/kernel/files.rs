// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-bufs and sync_files of the kernel, which know nothing of devices.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::slice;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::SeekFrom;

use super::ioctl::{ioctl, plain_ioctl};
use crate::Errno;
use crate::error::{Call, Error};
use crate::sharing::{Access, FenceInfo, SharedMemory, Sharing, SyncFileInfo};
use crate::sys;

/// What the kernel's dma-bufs and sync_files answer.
#[derive(Debug)]
pub(crate) struct KernelFiles;

/// Fences that there is room for in the first question: most sync_files have
/// no more.
const USUAL_FENCES: usize = 4;

/// How often a sync_file is asked again. Its number of fences never changes,
/// so the second time there is room.
const QUESTIONS: usize = 2;

fn flags(access: Access) -> u32 {
    match access {
        Access::Read => sys::DMA_BUF_SYNC_READ,
        Access::Write => sys::DMA_BUF_SYNC_WRITE,
    }
}

impl Sharing for KernelFiles {
    fn export_sync_file(&self, dma_buf: BorrowedFd<'_>, access: Access) -> Result<OwnedFd, Error> {
        let mut argument = sys::ExportSyncFile {
            flags: flags(access),
            fd: -1,
        };
        plain_ioctl(dma_buf, &mut argument)
            .map_err(|errno| Error::of(Call::ExportSyncFile, None, errno))?;
        // SAFETY: EXPORT_SYNC_FILE succeeded, so `fd` is a descriptor that the
        // kernel has just opened for this process; nobody else owns it. (A file
        // that is no dma-buf but takes the request is no file of the kernel's:
        // the letter is dma-buf's.)
        Ok(unsafe { OwnedFd::from_raw_fd(argument.fd) })
    }

    fn import_sync_file(
        &self,
        dma_buf: BorrowedFd<'_>,
        access: Access,
        sync_file: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let mut argument = sys::ImportSyncFile {
            flags: flags(access),
            fd: sync_file.as_raw_fd(),
        };
        plain_ioctl(dma_buf, &mut argument)
            .map_err(|errno| Error::of(Call::ImportSyncFile, None, errno))
    }

    fn merge(
        &self,
        name: &str,
        first: BorrowedFd<'_>,
        second: BorrowedFd<'_>,
    ) -> Result<OwnedFd, Error> {
        let mut argument = sys::SyncMergeData {
            fd2: second.as_raw_fd(),
            fence: -1,
            ..sys::SyncMergeData::default()
        };
        // The last byte stays 0.
        let room = argument.name.len() - 1;
        for (target, byte) in argument.name[..room].iter_mut().zip(name.bytes()) {
            *target = byte;
        }
        plain_ioctl(first, &mut argument)
            .map_err(|errno| Error::of(Call::SyncMerge, None, errno))?;
        // SAFETY: as in `export_sync_file`.
        Ok(unsafe { OwnedFd::from_raw_fd(argument.fence) })
    }

    fn info(&self, sync_file: BorrowedFd<'_>) -> Result<SyncFileInfo, Error> {
        let refused = |errno| Error::of(Call::SyncFileInfo, None, errno);
        let mut room = USUAL_FENCES;
        for _ in 0..QUESTIONS {
            let mut fences = vec![sys::SyncFenceInfo::default(); room];
            match ask(sync_file, &mut fences) {
                Ok(answer) => {
                    fences.truncate(answer.num_fences as usize);
                    return Ok(SyncFileInfo::from_kernel(
                        &answer.name,
                        fences.iter().map(fence_info).collect(),
                    ));
                }
                // Too little room: ask how much it takes.
                Err(Errno::INVAL) => {
                    let answer = ask(sync_file, &mut []).map_err(refused)?;
                    room = answer.num_fences as usize;
                }
                Err(errno) => return Err(refused(errno)),
            }
        }
        Err(refused(Errno::INVAL))
    }
}

/// SYNC_IOC_FILE_INFO with room for these fences.
fn ask(
    sync_file: BorrowedFd<'_>,
    fences: &mut [sys::SyncFenceInfo],
) -> Result<sys::SyncFileInfo, Errno> {
    let mut argument = sys::SyncFileInfo {
        num_fences: u32::try_from(fences.len()).map_err(|_| Errno::INVAL)?,
        sync_fence_info: fences.as_mut_ptr().expose_provenance() as u64,
        ..sys::SyncFileInfo::default()
    };
    // SAFETY: the address is that of `num_fences` structures, which nobody else
    // refers to during the call; with none it is not followed.
    unsafe { ioctl(sync_file, &mut argument) }?;
    Ok(argument)
}

fn fence_info(fence: &sys::SyncFenceInfo) -> FenceInfo {
    FenceInfo::from_kernel(
        &fence.driver_name,
        &fence.obj_name,
        fence.status,
        fence.timestamp_ns,
    )
}

/// The pages of a dma-buf.
#[derive(Debug)]
struct SharedPages(MmapRaw);

// SAFETY: `map` made a shared, readable and writable mapping of a whole dma-buf,
// which is pages, at a fixed place until it is dropped. A dma-buf never shrinks.
// The bytes of a GEM object are zeroed before anybody sees them.
unsafe impl SharedMemory for SharedPages {
    fn words(&self) -> &[AtomicU64] {
        let count = self.0.len() / size_of::<AtomicU64>();
        // SAFETY: see above: as many initialised words, aligned to a page, as
        // long as the mapping, and so the borrow, lives. Others may change
        // them, as atomics allow.
        unsafe { slice::from_raw_parts(self.0.as_mut_ptr().cast(), count) }
    }
}

/// Maps all of a dma-buf, which the caller knows that it is: another file could
/// shrink below the mapping. The file's position is moved, which nobody uses.
pub(super) fn map(dma_buf: BorrowedFd<'_>) -> Result<Box<dyn SharedMemory>, Error> {
    let len = rustix::fs::seek(dma_buf, SeekFrom::End(0))
        .map_err(|errno| Error::of(Call::Seek, None, errno))?;
    let refused = |errno| Error::of(Call::Mmap, None, errno);
    let len = usize::try_from(len).map_err(|_| refused(Errno::NOMEM))?;
    let map = MmapOptions::new().len(len).map_raw(&dma_buf);
    let map = map.map_err(|error| refused(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    Ok(Box::new(SharedPages(map)))
}
