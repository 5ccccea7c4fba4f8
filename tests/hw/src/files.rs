// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw ioctls on dma-bufs and sync_files.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rocket_uapi::{Errno, MapRequest, PlainArgument, SyncFile, sys};
use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::check::{Must, NotPassed};
use crate::raw::{File, Map};

/// Where the kernel gives memory that is not the driver's.
const DMA_HEAP: &str = "/dev/dma_heap/system";

/// DMA_HEAP_IOCTL_ALLOC (dma-heap.h).
const HEAP_ALLOC: u32 = 0xc018_4800;

/// `struct dma_heap_allocation_data`.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable)]
struct HeapAllocation {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

// SAFETY: by dma-heap.h the request takes this structure, of three numbers and a
// descriptor.
unsafe impl PlainArgument for HeapAllocation {
    const REQUESTS: &'static [u32] = &[HEAP_ALLOC];
}

/// Argument of SW_SYNC_INC: how far the timeline goes on.
#[repr(transparent)]
#[derive(FromBytes, IntoBytes, Immutable)]
struct Advance(u32);

// SAFETY: by sw_sync.c the request takes a number of 32 bits.
unsafe impl PlainArgument for Advance {
    const REQUESTS: &'static [u32] = &[sys::SW_SYNC_INC];
}

impl File {
    /// An ioctl on another file, whose structure holds no address.
    fn plain_on<T: PlainArgument>(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: &mut T,
    ) -> Result<(), Errno> {
        assert!(
            T::REQUESTS.contains(&request),
            "{request:#x} takes another argument"
        );
        // SAFETY: as in `plain`.
        unsafe { self.file_ioctl(file, request, Some(arg.as_mut_bytes())) }.map(drop)
    }

    pub(crate) fn export_fence(
        &self,
        dma_buf: BorrowedFd<'_>,
        flags: u32,
    ) -> Result<OwnedFd, Errno> {
        let mut arg = sys::ExportSyncFile { flags, fd: -1 };
        self.plain_on(dma_buf, sys::EXPORT_SYNC_FILE, &mut arg)?;
        // SAFETY: the kernel has put a new descriptor there, which nobody else
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
        self.plain_on(dma_buf, sys::IMPORT_SYNC_FILE, &mut arg)
    }

    pub(crate) fn dma_buf_sync(&self, dma_buf: BorrowedFd<'_>, flags: u64) -> Result<(), Errno> {
        self.plain_on(dma_buf, sys::DMA_BUF_SYNC, &mut sys::DmaBufSync { flags })
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
        self.plain_on(first, sys::SYNC_MERGE, &mut arg)?;
        // SAFETY: as in `export_fence`.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fence) })
    }

    /// FILE_INFO without room for single fences: status and number.
    pub(crate) fn fence_info(
        &self,
        sync_file: BorrowedFd<'_>,
        flags: u32,
    ) -> Result<(i32, u32), Errno> {
        let mut arg = sys::SyncFileInfo {
            flags,
            ..sys::SyncFileInfo::default()
        };
        let bytes = arg.as_mut_bytes();
        // SAFETY: the request is that of the structure; with room for no fences
        // its address is not followed.
        unsafe { self.file_ioctl(sync_file, sys::SYNC_FILE_INFO, Some(bytes)) }?;
        Ok((arg.status, arg.num_fences))
    }

    /// A fence that is signalled when the timeline comes to `value`.
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
        self.plain_on(timeline, sys::SW_SYNC_CREATE_FENCE, &mut arg)?;
        // SAFETY: as in `export_fence`.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fence) })
    }

    pub(crate) fn advance_timeline(&self, timeline: BorrowedFd<'_>, by: u32) -> Result<(), Errno> {
        self.plain_on(timeline, sys::SW_SYNC_INC, &mut Advance(by))
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
        self.plain_on(heap.as_fd(), HEAP_ALLOC, &mut arg)?;
        // SAFETY: as in `export_fence`.
        Ok(Some(unsafe { OwnedFd::from_raw_fd(arg.fd.cast_signed()) }))
    }

    /// mmap of a dma-buf.
    pub(crate) fn map_dma_buf(
        &self,
        dma_buf: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Map, Errno> {
        let mapped = self.device().raw_file().shared_files().mmap(
            dma_buf,
            &MapRequest {
                offset,
                len,
                prot,
                flags,
            },
        )?;
        Ok(Map::new(mapped))
    }

    pub(crate) fn seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        self.device().raw_file().shared_files().seek(file, to)
    }
}
