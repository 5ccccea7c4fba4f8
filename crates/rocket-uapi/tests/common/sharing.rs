// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-bufs and sync_files of the mock: ends of pipes, whose other ends tell
//! when they were closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rocket_uapi::{
    Access, Call, Errno, Error, FenceInfo, FenceStatus, Handle, Sharing, SyncFileInfo,
};

use super::memory::Pages;
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

    /// Reading finds the end of the file instead of nothing yet.
    pub(super) fn assert_closed(&self) {
        assert_eq!(rustix::io::read(&self.other_end, &mut [0_u8; 1]), Ok(0));
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        self.imported = self.imported.filter(|&imported| imported != handle);
    }
}

/// All these are ends for writing whose readers are gone.
pub(super) fn assert_closed(other_ends: &[OwnedFd], context: &str) {
    for end in other_ends {
        let written = rustix::io::write(end, &[0]);
        assert_eq!(written, Err(Errno::PIPE), "{context}: a sync_file is open");
    }
}

impl State {
    pub(super) fn exported(&mut self, fd: BorrowedFd<'_>) -> Result<&mut MockDmaBuf, Error> {
        let inode = inode(fd);
        let known = self.dma_bufs.iter_mut().find(|known| known.inode == inode);
        known.ok_or(Error::of(Call::PrimeImport, None, Errno::INVAL))
    }

    pub(super) fn import(&mut self, fd: BorrowedFd<'_>) -> Result<Handle, Error> {
        let number = self.bos.keys().last().map_or(1, |last| last.get() + 1);
        let exported = self.exported(fd)?;
        let handle = *exported
            .imported
            .get_or_insert(Handle::new(number).unwrap());
        let pages = Arc::clone(&exported.pages);
        self.bos.insert(handle, pages);
        Ok(handle)
    }
}

impl Mock {
    /// One that is signalled.
    pub(super) fn new_sync_file(&self, call: Call) -> Result<OwnedFd, Error> {
        let mut state = self.enter(call, None)?;
        let (sync_file, other_end) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&other_end, &[0]).unwrap();
        state.sync_files.push(other_end);
        Ok(sync_file)
    }
}

impl Sharing for Mock {
    fn export_sync_file(&self, _: BorrowedFd<'_>, _: Access) -> Result<OwnedFd, Error> {
        self.new_sync_file(Call::ExportSyncFile)
    }

    fn import_sync_file(
        &self,
        _: BorrowedFd<'_>,
        _: Access,
        _: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        self.enter(Call::ImportSyncFile, None).map(drop)
    }

    fn merge(&self, _: &str, _: BorrowedFd<'_>, _: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        self.new_sync_file(Call::SyncMerge)
    }

    fn info(&self, _: BorrowedFd<'_>) -> Result<SyncFileInfo, Error> {
        drop(self.enter(Call::SyncFileInfo, None)?);
        Ok(SyncFileInfo {
            name: String::new(),
            fences: vec![FenceInfo {
                driver: String::new(),
                timeline: String::new(),
                status: FenceStatus::Signaled,
                ended: None,
            }],
        })
    }
}
