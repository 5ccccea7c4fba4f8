// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain ioctls on dma-bufs and sync_files.

#![cfg(not(miri))]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use npu_model::driver::{Arena, SharedFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use rocket_uapi::sys::{
    DMA_BUF_SET_NAME as SET_NAME_B, DMA_BUF_SYNC, DMA_BUF_SYNC_READ as READ,
    DMA_BUF_SYNC_WRITE as WRITE, EXPORT_SYNC_FILE, IMPORT_SYNC_FILE, SYNC_FILE_INFO as FILE_INFO,
    SYNC_MERGE as MERGE,
};

/// `SYNC_IOC_SET_DEADLINE`, which clients do without.
pub const SET_DEADLINE: u32 = 0x4010_3e05;

/// The same with an address of 32 bits.
pub const SET_NAME_A: u32 = SET_NAME_B ^ (8 | 4) << 16;

/// What is asked of the model about a descriptor.
pub fn file(fd: &OwnedFd) -> SharedFile {
    SharedFile::of(fd.as_raw_fd()).unwrap().unwrap()
}

/// An ioctl whose argument is a structure; gives the structure back.
pub fn ioctl(fd: &OwnedFd, request: u32, arg: &[u8]) -> Result<Vec<u8>, Errno> {
    let arena = Arena::new();
    let at = arena.push(arg);
    file(fd).ioctl(request, at, &arena)?;
    let mut out = vec![0; arg.len()];
    npu_model::driver::UserMemory::read(&arena, at, &mut out).unwrap();
    Ok(out)
}

pub fn new_fd(bytes: &[u8]) -> OwnedFd {
    let fd = i32::from_le_bytes(bytes.try_into().unwrap());
    // SAFETY: the call has just made this descriptor and gave it to us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub fn sync(dma_buf: &OwnedFd, flags: u64) -> Result<(), Errno> {
    ioctl(dma_buf, DMA_BUF_SYNC, &flags.to_le_bytes()).map(drop)
}

pub fn export_fence(dma_buf: &OwnedFd, flags: u32) -> Result<OwnedFd, Errno> {
    let mut arg = [0xff; 8];
    arg[..4].copy_from_slice(&flags.to_le_bytes());
    let out = ioctl(dma_buf, EXPORT_SYNC_FILE, &arg)?;
    Ok(new_fd(&out[4..8]))
}

pub fn import_fence(dma_buf: &OwnedFd, flags: u32, fd: i32) -> Result<(), Errno> {
    let arg = [flags.to_le_bytes(), fd.to_le_bytes()].concat();
    ioctl(dma_buf, IMPORT_SYNC_FILE, &arg).map(drop)
}

/// MERGE with these flags and pad.
pub fn merge_with(a: &OwnedFd, name: &[u8], b: i32, tail: [u32; 2]) -> Result<OwnedFd, Errno> {
    let mut arg = [0; 48];
    arg[..name.len()].copy_from_slice(name);
    arg[32..36].copy_from_slice(&b.to_le_bytes());
    arg[40..44].copy_from_slice(&tail[0].to_le_bytes());
    arg[44..48].copy_from_slice(&tail[1].to_le_bytes());
    let out = ioctl(a, MERGE, &arg)?;
    Ok(new_fd(&out[36..40]))
}

pub fn merge(a: &OwnedFd, b: &OwnedFd) -> OwnedFd {
    merge_with(a, b"", b.as_raw_fd(), [0, 0]).unwrap()
}

/// What FILE_INFO says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub name: String,
    pub status: i32,
    pub num_fences: u32,
    pub fences: Vec<FenceInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceInfo {
    pub timeline: String,
    pub driver: String,
    pub status: i32,
    pub timestamp_ns: u64,
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap();
    String::from_utf8(bytes[..end].to_vec()).unwrap()
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// FILE_INFO with room for so many fences, and these flags and pad.
pub fn info_with(fd: &OwnedFd, room: u32, flags: u32, pad: u32) -> Result<Info, Errno> {
    const FENCE_BYTES: usize = 80;
    let arena = Arena::new();
    let array = arena.push(&vec![0xee; FENCE_BYTES * room as usize]);
    let mut arg = [0xee; 56];
    arg[36..40].copy_from_slice(&flags.to_le_bytes());
    arg[40..44].copy_from_slice(&room.to_le_bytes());
    arg[44..48].copy_from_slice(&pad.to_le_bytes());
    arg[48..56].copy_from_slice(&array.to_le_bytes());
    let at = arena.push(&arg);
    file(fd).ioctl(FILE_INFO, at, &arena)?;
    let read = |at, len| {
        let mut out = vec![0; len];
        npu_model::driver::UserMemory::read(&arena, at, &mut out).unwrap();
        out
    };
    let out = read(at, arg.len());
    let num_fences = i32_at(&out, 40).unsigned_abs();
    let fences = (0..num_fences.min(room)).map(|index| {
        let bytes = read(array + u64::from(index) * FENCE_BYTES as u64, FENCE_BYTES);
        FenceInfo {
            timeline: text(&bytes[..32]),
            driver: text(&bytes[32..64]),
            status: i32_at(&bytes, 64),
            timestamp_ns: u64::from_le_bytes(bytes[72..80].try_into().unwrap()),
        }
    });
    Ok(Info {
        name: text(&out[..32]),
        status: i32_at(&out, 32),
        num_fences,
        fences: fences.collect(),
    })
}

pub fn info(fd: &OwnedFd) -> Info {
    let all = info_with(fd, 0, 0, 0).unwrap().num_fences;
    info_with(fd, all, 0, 0).unwrap()
}

/// Whether the host's poll finds the descriptor readable, which is as the model
/// says of it; waits so long. The host may learn of it a moment later, so it is
/// waited for where the model says that it must come.
pub fn readable(fd: &OwnedFd, wait: Option<Timespec>) -> bool {
    let is_ready = || file(fd).poll(PollFlags::IN) == PollFlags::IN;
    let wait = if is_ready() { None } else { wait };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, wait.as_ref()).unwrap();
    let events = fds[0].revents();
    assert!(
        events.is_empty() || events == PollFlags::IN && is_ready(),
        "{events:?}"
    );
    events == PollFlags::IN
}

pub const AT_ONCE: Option<Timespec> = Some(Timespec {
    tv_sec: 0,
    tv_nsec: 0,
});
