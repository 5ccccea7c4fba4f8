// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model's dma-bufs and sync_files behind `rocket-uapi`'s seam.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::slice;
use std::sync::atomic::AtomicU64;

use rocket_uapi::{Access, Call, Errno, Error, FenceInfo, SharedMemory, Sharing, SyncFileInfo};
use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::driver::{Arena, Mapping, SharedFile, UserMemory, abi};

/// What the model's dma-bufs and sync_files answer.
#[derive(Debug)]
pub(crate) struct ModelFiles;

/// The file of the model behind a descriptor. To any other an ioctl of these
/// means nothing.
fn file(fd: BorrowedFd<'_>) -> Result<SharedFile, Errno> {
    SharedFile::of(fd.as_raw_fd())?.ok_or(Errno::NOTTY)
}

fn flags(access: Access) -> u32 {
    match access {
        Access::Read => abi::DMA_BUF_SYNC_READ,
        Access::Write => abi::DMA_BUF_SYNC_WRITE as u32,
    }
}

impl Sharing for ModelFiles {
    fn export_sync_file(&self, dma_buf: BorrowedFd<'_>, access: Access) -> Result<OwnedFd, Error> {
        file(dma_buf)
            .and_then(|file| file.export_sync_file(flags(access)))
            .map_err(|errno| Error::of(Call::ExportSyncFile, None, errno))
    }

    fn import_sync_file(
        &self,
        dma_buf: BorrowedFd<'_>,
        access: Access,
        sync_file: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let argument = abi::DmaBufSyncFile {
            flags: flags(access),
            fd: sync_file.as_raw_fd(),
        };
        let arena = Arena::new();
        let at = arena.push(argument.as_bytes());
        file(dma_buf)
            .and_then(|file| file.ioctl(abi::DMA_BUF_IMPORT_SYNC_FILE, at, &arena))
            .map(drop)
            .map_err(|errno| Error::of(Call::ImportSyncFile, None, errno))
    }

    fn merge(
        &self,
        name: &str,
        first: BorrowedFd<'_>,
        second: BorrowedFd<'_>,
    ) -> Result<OwnedFd, Error> {
        file(first)
            .and_then(|file| file.merge(name.as_bytes(), second.as_raw_fd()))
            .map_err(|errno| Error::of(Call::SyncMerge, None, errno))
    }

    fn info(&self, sync_file: BorrowedFd<'_>) -> Result<SyncFileInfo, Error> {
        file(sync_file)
            .and_then(|file| {
                let count = ask(&file, 0)?.0.num_fences;
                let (argument, fences) = ask(&file, count)?;
                Ok(SyncFileInfo::from_kernel(
                    &argument.name,
                    fences.iter().map(fence_info).collect(),
                ))
            })
            .map_err(|errno| Error::of(Call::SyncFileInfo, None, errno))
    }
}

/// SYNC_IOC_FILE_INFO with room for so many fences.
fn ask(
    file: &SharedFile,
    room: u32,
) -> Result<(abi::SyncFileInfo, Vec<abi::SyncFenceInfo>), Errno> {
    let arena = Arena::new();
    let mut fences = vec![abi::SyncFenceInfo::default(); room as usize];
    let array = arena.push(fences.as_bytes());
    let argument = abi::SyncFileInfo {
        num_fences: room,
        sync_fence_info: array,
        ..abi::SyncFileInfo::default()
    };
    let at = arena.push(argument.as_bytes());
    file.ioctl(abi::SYNC_IOC_FILE_INFO, at, &arena)?;
    let mut bytes = [0; size_of::<abi::SyncFileInfo>()];
    arena.read(at, &mut bytes).map_err(|_| Errno::FAULT)?;
    arena
        .read(array, fences.as_mut_bytes())
        .map_err(|_| Errno::FAULT)?;
    let argument = abi::SyncFileInfo::read_from_bytes(&bytes).map_err(|_| Errno::FAULT)?;
    Ok((argument, fences))
}

fn fence_info(fence: &abi::SyncFenceInfo) -> FenceInfo {
    FenceInfo::from_kernel(
        &fence.driver_name,
        &fence.obj_name,
        fence.status,
        fence.timestamp_ns,
    )
}

/// The pages of a dma-buf of the model.
#[derive(Debug)]
struct DmaBufPages(Mapping);

// SAFETY: `map` made a mapping of all pages of a buffer object, for reading and
// writing, which stays where it is and keeps the object. They are zeroed when
// made, and their file is sealed against shrinking.
unsafe impl SharedMemory for DmaBufPages {
    fn words(&self) -> &[AtomicU64] {
        let count = self.0.len() / size_of::<AtomicU64>();
        // SAFETY: see above: as many initialised words, aligned to a page, as
        // long as the mapping, and so the borrow, lives. Others may change
        // them, as atomics allow; the model does so by the same words.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), count) }
    }
}

/// Maps all of a dma-buf.
pub(crate) fn map(dma_buf: BorrowedFd<'_>) -> Result<Box<dyn SharedMemory>, Error> {
    let mapping = file(dma_buf).and_then(|file| {
        let len = usize::try_from(file.seek(SeekFrom::End(0))?).map_err(|_| Errno::NOMEM)?;
        file.mmap(0, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    });
    match mapping {
        Ok(mapping) => Ok(Box::new(DmaBufPages(mapping))),
        Err(errno) => Err(Error::of(Call::Mmap, None, errno)),
    }
}
