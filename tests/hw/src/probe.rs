// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw calls that single rows make: texts, structures of other sizes, arrays.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use npu_model::driver::SharedFile;
use rocket_uapi::{Errno, sys};
use rustix::event::{PollFd, PollFlags, Timespec};
use zerocopy::{FromZeros, IntoBytes};

use crate::raw::File;

/// Bytes of the largest structure of a dma-buf's or a sync_file's requests.
const LARGEST: usize = size_of::<sys::SyncFileInfo>();

/// SYNC_IOC_SET_DEADLINE (sync_file.h): a time and 64 bits of padding.
pub(crate) const SET_DEADLINE: u32 = 0x4010_3e05;

/// SET_NAME with an address of 32 bits.
const SET_NAME_A: u32 = sys::DMA_BUF_SET_NAME ^ (8 | 4) << 16;

impl File {
    /// The name that VERSION puts into as many bytes, and how long it and the
    /// description are, for which there is no room.
    pub(crate) fn version_in(&self, name: &mut [u8]) -> Result<(u64, u64), Errno> {
        let mut arg = sys::Version {
            name_len: name.len() as u64,
            name: name.as_mut_ptr().expose_provenance() as u64,
            ..sys::Version::default()
        };
        // SAFETY: the request is that of the structure; `name` has as many bytes as
        // the length says, and at NULL nothing is written.
        unsafe { self.ioctl(sys::VERSION, Some(arg.as_mut_bytes())) }?;
        Ok((arg.name_len, arg.desc_len))
    }

    /// CREATE_BO whose request tells 8 bytes: size, handle, and what was behind them,
    /// where the address would be.
    pub(crate) fn create_short(&self, size: u32, behind: u32) -> Result<[u32; 3], Errno> {
        let mut arg = [size, 0, behind];
        let request = sys::CREATE_BO ^ (24 ^ 8) << 16;
        // SAFETY: the size in the request is less than that of `arg`, and CREATE_BO
        // follows no address.
        unsafe { self.ioctl(request, Some(arg.as_mut_bytes())) }?;
        Ok(arg)
    }

    /// Any request with NULL as its argument.
    pub(crate) fn null_on(&self, file: BorrowedFd<'_>, request: u32) -> Result<i32, Errno> {
        // SAFETY: nothing can be read or written at NULL.
        unsafe { self.file_ioctl(file, request, None) }
    }

    /// A request with one byte less or more than it takes, all zeros.
    pub(crate) fn resized_on(&self, file: BorrowedFd<'_>, request: u32) -> Result<i32, Errno> {
        let mut arg = [0; LARGEST + 1];
        // SAFETY: the size in the request is at most that of `arg`, which holds no
        // address but NULL.
        unsafe { self.file_ioctl(file, request ^ 1 << 16, Some(&mut arg)) }
    }

    /// SET_NAME in both forms.
    pub(crate) fn set_names(&self, dma_buf: BorrowedFd<'_>, name: &CStr) -> [Result<(), Errno>; 2] {
        [SET_NAME_A, sys::DMA_BUF_SET_NAME].map(|request| {
            let mut name = name.to_bytes_with_nul().to_vec();
            // SAFETY: the kernel reads up to the terminator.
            let named = unsafe { self.file_ioctl(dma_buf, request, Some(&mut name)) };
            named.map(drop)
        })
    }

    pub(crate) fn set_deadline(&self, fence: BorrowedFd<'_>, pad: u64) -> Result<i32, Errno> {
        let mut arg = [0, pad];
        let bytes = arg.as_mut_bytes();
        // SAFETY: the size in the request is 16, and no address is in it.
        unsafe { self.file_ioctl(fence, SET_DEADLINE, Some(bytes)) }
    }

    /// FILE_INFO with room for so many fences: status and number, and the status of
    /// each.
    pub(crate) fn fence_infos(
        &self,
        fence: BorrowedFd<'_>,
        room: usize,
        pad: u32,
    ) -> Result<(i32, u32, Vec<i32>), Errno> {
        let mut fences = vec![sys::SyncFenceInfo::new_zeroed(); room];
        let mut arg = sys::SyncFileInfo {
            num_fences: room as u32,
            pad,
            sync_fence_info: fences.as_mut_ptr().expose_provenance() as u64,
            ..sys::SyncFileInfo::default()
        };
        let bytes = arg.as_mut_bytes();
        // SAFETY: the request is that of the structure; its address is that of an
        // array with as many entries as it says.
        unsafe { self.file_ioctl(fence, sys::SYNC_FILE_INFO, Some(bytes)) }?;
        let known = fences.iter().take(arg.num_fences as usize);
        let known = known.map(|fence| fence.status).collect();
        Ok((arg.status, arg.num_fences, known))
    }
}

/// Whether a dma-buf can be read and written at once, by poll. The model's
/// descriptors do not know it by themselves.
pub(crate) fn readiness(dma_buf: &OwnedFd) -> Result<[bool; 2], Errno> {
    let both = PollFlags::IN | PollFlags::OUT;
    let ready = match SharedFile::of(dma_buf.as_raw_fd())? {
        Some(file) => file.poll(both),
        None => {
            let mut fds = [PollFd::new(dma_buf, both)];
            rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
            fds[0].revents()
        }
    };
    Ok([PollFlags::IN, PollFlags::OUT].map(|event| ready.contains(event)))
}
