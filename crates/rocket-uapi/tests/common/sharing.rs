// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-bufs and sync_files of the mock: ends of pipes, whose other ends show whether they
//! are closed.

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rocket_uapi::{
    Caller, Errno, Handle, MapRequest, MappedMemory, PAGE_BYTES, SharedFileOperations, sys,
};
use rustix::fs::SeekFrom;
use zerocopy::IntoBytes;

use super::memory::{Mapping, Pages};
use super::{Mock, State};

#[derive(Debug)]
pub(super) struct MockDmaBuf {
    other_end: OwnedFd,
    inode: u64,
    pub(super) pages: Arc<Pages>,
    imported: Option<Handle>,
}

fn inode(fd: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(fd).unwrap().st_ino
}

impl MockDmaBuf {
    pub(super) fn new(pages: &Arc<Pages>) -> (Self, OwnedFd) {
        let (other_end, dma_buf) = rustix::pipe::pipe().unwrap();
        let exported = Self {
            other_end,
            inode: inode(dma_buf.as_fd()),
            pages: Arc::clone(pages),
            imported: None,
        };
        (exported, dma_buf)
    }

    /// Asserts that the dma-buf is closed: a read returns the end of the file, not EAGAIN.
    pub(super) fn assert_closed(&self) {
        assert_eq!(rustix::io::read(&self.other_end, &mut [0_u8; 1]), Ok(0));
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        self.imported = self.imported.filter(|&imported| imported != handle);
    }
}

/// Asserts that the readers of all these write ends are gone.
pub(super) fn assert_closed(other_ends: &[OwnedFd], context: &str) {
    for end in other_ends {
        let written = rustix::io::write(end, &[0]);
        assert_eq!(written, Err(Errno::PIPE), "{context}: a sync_file is open");
    }
}

fn exported<'a>(
    all: &'a mut [MockDmaBuf],
    fd: BorrowedFd<'_>,
) -> Result<&'a mut MockDmaBuf, Errno> {
    let inode = inode(fd);
    let known = all.iter_mut().find(|known| known.inode == inode);
    known.ok_or(Errno::INVAL)
}

impl State {
    pub(super) fn import(&mut self, fd: RawFd) -> Result<Handle, Errno> {
        // SAFETY: the caller keeps the descriptor open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let next = self.next_handle();
        let exported = exported(&mut self.dma_bufs, fd)?;
        let handle = *exported.imported.get_or_insert(next);
        self.bos.insert(handle, Arc::clone(&exported.pages));
        Ok(handle)
    }
}

// SAFETY: a mapping keeps the memory of its dma-buf alive; returned descriptors are new.
unsafe impl SharedFileOperations for Mock {
    unsafe fn ioctl(
        &self,
        _: BorrowedFd<'_>,
        request: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        let mut state = self.enter()?;
        let put = |offset: usize, bytes: &[u8]| caller.write(arg + offset as u64, bytes);
        // Returns a signalled sync_file.
        let mut give = |offset: usize| {
            let (sync_file, other_end) = rustix::pipe::pipe()?;
            rustix::io::write(&other_end, &[0])?;
            state.sync_files.push(other_end);
            caller.install(sync_file, true, &mut |fd| put(offset, fd.as_bytes()))
        };
        match request {
            sys::EXPORT_SYNC_FILE => give(offset_of!(sys::ExportSyncFile, fd))?,
            sys::SYNC_MERGE => give(offset_of!(sys::SyncMergeData, fence))?,
            sys::IMPORT_SYNC_FILE => (),
            sys::SYNC_FILE_INFO => {
                let mut info = sys::SyncFileInfo::default();
                caller.read(arg, info.as_mut_bytes()).unwrap();
                info.num_fences = 1;
                put(0, info.as_bytes())?;
                let fence = sys::SyncFenceInfo {
                    status: 1,
                    ..sys::SyncFenceInfo::default()
                };
                caller
                    .write(info.sync_fence_info, fence.as_bytes())
                    .unwrap();
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    }

    fn seek(&self, _: BorrowedFd<'_>, _: SeekFrom) -> Result<u64, Errno> {
        // One page is enough.
        Ok(PAGE_BYTES as u64)
    }

    fn mmap(&self, file: BorrowedFd<'_>, _: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno> {
        let mut state = self.enter()?;
        let pages = Arc::clone(&exported(&mut state.dma_bufs, file)?.pages);
        Ok(Box::new(Mapping::new(pages, Box::new(|| ()))))
    }
}
