// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw ioctls on dma-bufs and sync_files.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rocket_uapi::{Errno, MapRequest, SyncFile, sys};
use rustix::fs::SeekFrom;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::check::{Must, NotPassed};
use crate::raw::{File, Map};
use crate::request::{DMA_HEAP_ALLOC, HeapAllocation, plain};

/// The kernel's source of memory that is not the driver's.
const DMA_HEAP: &str = "/dev/dma_heap/system";

impl File {
    /// An ioctl on another file, whose argument holds no address.
    pub(crate) fn call_on<T: FromBytes + IntoBytes>(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: &mut T,
    ) -> Result<(), Errno> {
        // SAFETY: as in `call`.
        unsafe { self.file_ioctl(file, request, Some(plain(request, arg))) }
    }

    pub(crate) fn export_fence(
        &self,
        dma_buf: BorrowedFd<'_>,
        flags: u32,
    ) -> Result<OwnedFd, Errno> {
        let mut arg = sys::ExportSyncFile { flags, fd: -1 };
        self.call_on(dma_buf, sys::EXPORT_SYNC_FILE, &mut arg)?;
        // SAFETY: the kernel has put a new descriptor there, which no other code
        // knows.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fd) })
    }

    /// The fence of the jobs that write a dma-buf.
    pub(crate) fn writers(&self, dma_buf: BorrowedFd<'_>) -> Result<SyncFile, NotPassed> {
        let fence = self.export_fence(dma_buf, sys::DMA_BUF_SYNC_READ);
        let fence = fence.must("EXPORT_SYNC_FILE")?;
        Ok(self.device().adopt_sync_file(fence))
    }

    pub(crate) fn import_fence(
        &self,
        dma_buf: BorrowedFd<'_>,
        flags: u32,
        sync_file: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let fd = sync_file.as_raw_fd();
        let mut arg = sys::ImportSyncFile { flags, fd };
        self.call_on(dma_buf, sys::IMPORT_SYNC_FILE, &mut arg)
    }

    pub(crate) fn dma_buf_sync(&self, dma_buf: BorrowedFd<'_>, flags: u64) -> Result<(), Errno> {
        let mut arg = sys::DmaBufSync { flags };
        self.call_on(dma_buf, sys::DMA_BUF_SYNC, &mut arg)
    }

    pub(crate) fn merge(
        &self,
        first: BorrowedFd<'_>,
        second: BorrowedFd<'_>,
        flags: u32,
    ) -> Result<OwnedFd, Errno> {
        let mut arg = sys::SyncMergeData {
            fd2: second.as_raw_fd(),
            fence: -1,
            flags,
            ..sys::SyncMergeData::default()
        };
        self.call_on(first, sys::SYNC_MERGE, &mut arg)?;
        // SAFETY: as in `export_fence`.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fence) })
    }

    /// FILE_INFO without room for fences: the status and the number of fences.
    pub(crate) fn fence_info(
        &self,
        sync_file: BorrowedFd<'_>,
        flags: u32,
    ) -> Result<(i32, u32), Errno> {
        let arg = sys::SyncFileInfo {
            flags,
            ..sys::SyncFileInfo::default()
        };
        let info = self.fence_infos(sync_file, arg, 0)?.0;
        Ok((info.status, info.num_fences))
    }

    /// FILE_INFO with room for `room` fences, and the status of each.
    pub(crate) fn fence_infos(
        &self,
        sync_file: BorrowedFd<'_>,
        mut arg: sys::SyncFileInfo,
        room: usize,
    ) -> Result<(sys::SyncFileInfo, Vec<i32>), Errno> {
        let mut fences = vec![sys::SyncFenceInfo::new_zeroed(); room];
        arg.num_fences = room as u32;
        arg.sync_fence_info = fences.as_mut_ptr().expose_provenance() as u64;
        let bytes = arg.as_mut_bytes();
        // SAFETY: the request is that of the structure; its address is that of an
        // array with as many entries as it says.
        unsafe { self.file_ioctl(sync_file, sys::SYNC_FILE_INFO, Some(bytes)) }?;
        let known = fences.iter().take(arg.num_fences as usize);
        let known = known.map(|fence| fence.status).collect();
        Ok((arg, known))
    }

    /// A fence that is signalled when the timeline reaches `value`.
    pub(crate) fn timeline_fence(
        &self,
        timeline: BorrowedFd<'_>,
        value: u32,
    ) -> Result<OwnedFd, Errno> {
        let mut arg = sys::SwSyncCreateFence {
            value,
            name: [0; 32],
            fence: -1,
        };
        self.call_on(timeline, sys::SW_SYNC_CREATE_FENCE, &mut arg)?;
        // SAFETY: as in `export_fence`.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fence) })
    }

    /// A dma-buf of the machine's dma-heap, if it has one.
    pub(crate) fn dma_heap(&self, len: u64) -> Result<Option<OwnedFd>, Errno> {
        let Ok(heap) = std::fs::File::open(DMA_HEAP) else {
            return Ok(None);
        };
        let mut arg = HeapAllocation {
            len,
            fd: 0,
            fd_flags: sys::DRM_CLOEXEC | sys::DRM_RDWR,
            heap_flags: 0,
        };
        self.call_on(heap.as_fd(), DMA_HEAP_ALLOC, &mut arg)?;
        // SAFETY: as in `export_fence`.
        Ok(Some(unsafe { OwnedFd::from_raw_fd(arg.fd.cast_signed()) }))
    }

    pub(crate) fn map_dma_buf(
        &self,
        dma_buf: BorrowedFd<'_>,
        request: &MapRequest,
    ) -> Result<Map, Errno> {
        self.raw().shared_files().mmap(dma_buf, request).map(Map)
    }

    pub(crate) fn seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        self.raw().shared_files().seek(file, to)
    }
}
