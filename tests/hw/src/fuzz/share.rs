// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on objects that files share: dma-bufs and sync_files.

use std::os::fd::{AsFd, BorrowedFd};

use rocket_uapi::{Errno, sys};

use super::choices::CallChoices;
use super::world::{World, keep, only};
use crate::check::{Must, RowOutcome};

/// Flags of dma-bufs, right and wrong ones.
const FLAGS: [u32; 5] = [1, 2, 3, 0, 8];

/// The error of a call on a dma-buf with wrong flags, or on the wrong kind of file.
fn refusal(wrong: bool) -> Errno {
    if wrong { Errno::NOTTY } else { Errno::INVAL }
}

impl<C: CallChoices> World<C> {
    pub(super) fn export(&mut self) -> RowOutcome {
        let (file, handle) = self.named();
        let both = sys::DRM_CLOEXEC | sys::DRM_RDWR;
        let flags = self.rng.mostly(both, &[0, sys::DRM_RDWR, 1, u32::MAX]);
        let got = file.export_with(handle, flags);
        let dma_buf = only("export", got, &[Errno::INVAL, Errno::NOENT])?;
        keep(&mut self.rng, &mut self.dma_bufs, dma_buf);
        Ok(())
    }

    /// A dma-buf, or a fence as the wrong kind of file, and whether it is wrong.
    fn any_fd(&mut self) -> Option<(BorrowedFd<'_>, bool)> {
        let wrong = self.rng.once_in(12);
        let of = if wrong { &self.fences } else { &self.dma_bufs };
        let at = self.rng.any() as usize % of.len().max(1);
        of.get(at).map(|fd| (fd.as_fd(), wrong))
    }

    pub(super) fn import(&mut self) -> RowOutcome {
        let at = self.slot();
        let file = self.slots[at].file.clone();
        if self.rng.once_in(12) {
            let number = self.rng.pick(&[-1, i32::MAX, i32::MIN]).unwrap_or(-1);
            only("import", file.import_number(number), &[Errno::BADF])?;
            return Ok(());
        }
        let Some((fd, _)) = self.any_fd() else {
            return Ok(());
        };
        let got = file.import(fd);
        if let Some(handle) = only("import", got, &[Errno::INVAL])? {
            // An import returns no address and no offset.
            let bo = sys::CreateBo {
                handle,
                ..sys::CreateBo::default()
            };
            self.slots[at].bos.push(bo);
        }
        Ok(())
    }

    /// Exports, imports, merges or queries a fence.
    pub(super) fn fences(&mut self) -> RowOutcome {
        let at = self.slot();
        let file = self.slots[at].file.clone();
        let what = self.rng.within(0..5);
        let flags = self.rng.pick(&FLAGS).unwrap_or(1);
        let nth = self.rng.any() as usize;
        if what == 0 {
            let Some((fd, wrong)) = self.any_fd() else {
                return Ok(());
            };
            let got = file.export_fence(fd, flags);
            let fence = only("export of fences", got, &[refusal(wrong)])?;
            keep(&mut self.rng, &mut self.fences, fence);
            return Ok(());
        }
        let Some(fence) = self.fences.get(nth % self.fences.len().max(1)) else {
            return Ok(());
        };
        let fence = fence.try_clone().must("dup")?;
        let Some((fd, wrong)) = self.any_fd() else {
            return Ok(());
        };
        let rare = if nth.is_multiple_of(8) { flags } else { 0 };
        match what {
            1 => {
                let got = file.import_fence(fd, flags, fence.as_fd());
                only("import of fences", got, &[refusal(wrong)])?;
            }
            2 => {
                let sync = u64::from(flags) | if nth.is_multiple_of(2) { 4 } else { 0 };
                let got = file.dma_buf_sync(fd, sync);
                only("DMA_BUF_IOCTL_SYNC", got, &[refusal(wrong)])?;
            }
            3 => {
                let got = file.merge(fence.as_fd(), fd, rare);
                let merged = only("merge", got, &[Errno::INVAL, Errno::NOENT])?;
                keep(&mut self.rng, &mut self.fences, merged);
                let merged = file.merge(fence.as_fd(), fence.as_fd(), 0).must("merge")?;
                keep(&mut self.rng, &mut self.fences, Some(merged));
            }
            _ => {
                let got = file.fence_info(fence.as_fd(), rare);
                only("SYNC_IOC_FILE_INFO", got, &[Errno::INVAL])?;
            }
        }
        Ok(())
    }
}
