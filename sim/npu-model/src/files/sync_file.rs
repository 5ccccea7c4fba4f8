// SPDX-License-Identifier: MIT OR Apache-2.0
//! sync_files: fences in a file (Linux, drivers/dma-buf/sync_file.c).
//!
//! The client's descriptor is one end of a socket pair. When the fences are
//! signalled, the model shuts its own end down for writing. From then on every
//! copy of the descriptor polls as readable, and no read changes that. When the
//! last copy is closed, the model's end hangs up.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use rocket_uapi::{Caller, FenceStatus, monotonic_ns, sys};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::Shutdown;
use zerocopy::IntoBytes;

use crate::base::abi;
use crate::files::shared_file::{self, SharedFile, SharedFileKind, copy_in, copy_out, has_hung_up};
use crate::objects::fence::{Fence, Watcher, new_contexts};
use crate::objects::resv::Exported;

/// Status of a signalled fence in SYNC_IOC_FILE_INFO.
const STATUS_SIGNALED: i32 = 1;

/// A sync_file: fences behind a descriptor.
#[derive(Debug)]
pub(crate) struct ModelSyncFile {
    /// At least one fence.
    exported: Exported,
    /// The timeline of several fences as one (`dma_fence_array`).
    array_context: u64,
    /// The name given to MERGE, else empty.
    name: Vec<u8>,
    /// The model's end of the socket pair.
    socket: OwnedFd,
}

impl ModelSyncFile {
    /// Makes a file of these fences, or of a signalled one if there are none. `name` is
    /// empty except for MERGE.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn create(mut exported: Exported, name: Vec<u8>) -> Result<OwnedFd, Errno> {
        if exported.fences.is_empty() {
            exported.fences.push(Arc::new(Fence::stub(monotonic_ns())));
        }
        let make = |socket| {
            Ok(Arc::new(Self {
                exported,
                array_context: new_contexts(1),
                name,
                socket,
            }))
        };
        let (file, client) = shared_file::with_socket(make)?;
        let watcher: Weak<Self> = Arc::downgrade(&file);
        for fence in &file.exported.fences {
            fence.watch(watcher.clone());
        }
        // For fences that were signalled before.
        file.signalled();
        Ok(client)
    }

    fn fences(&self) -> &[Arc<Fence>] {
        &self.exported.fences
    }

    fn is_active(&self) -> bool {
        self.fences().iter().any(|fence| fence.is_active())
    }

    /// Makes a file of the unsignalled fences of this file and another one.
    ///
    /// Signalled fences are left out, with their errors. Of one timeline only
    /// the latest stays.
    ///
    /// # Errors
    /// `EINVAL` for flags, `ENOENT` if the other file is not a sync_file.
    fn merge(&self, argument: &sys::SyncMergeData, user: &dyn Caller) -> Result<OwnedFd, Errno> {
        if argument.flags != 0 || argument.pad != 0 {
            return Err(Errno::INVAL);
        }
        let other = SharedFile::of_caller(argument.fd2, user).ok_or(Errno::NOENT)?;
        let other = other.0.exported().ok_or(Errno::NOENT)?;
        let both = || self.fences().iter().chain(&other.fences);
        let mut fences: Vec<_> = both().filter(|fence| fence.is_active()).cloned().collect();
        fences.sort_by_key(|fence| (fence.context(), std::cmp::Reverse(fence.seqno())));
        fences.dedup_by_key(|fence| fence.context());
        if fences.is_empty() {
            let last = both().filter_map(|fence| fence.ended_ns()).max();
            fences.push(Arc::new(Fence::stub(last.unwrap_or_default())));
        }
        let name = argument.name[..argument.name.len() - 1].split(|&byte| byte == 0);
        let name = name.into_iter().next().unwrap_or_default();
        let named = [&self.exported.named[..], &other.named].concat();
        let merged = Exported { fences, named };
        Self::create(merged, name.to_vec())
    }

    /// SYNC_IOC_FILE_INFO: the status of the file, and of each fence if there
    /// is room.
    fn info(&self, argument: &mut sys::SyncFileInfo, user: &dyn Caller) -> Result<(), Errno> {
        if argument.flags != 0 || argument.pad != 0 {
            return Err(Errno::INVAL);
        }
        let room = argument.num_fences as usize;
        if room == 0 {
            argument.status = self.status_as_one();
        } else if room < self.fences().len() {
            return Err(Errno::INVAL);
        } else {
            let infos: Vec<_> = self
                .fences()
                .iter()
                .map(|fence| fence_info(fence))
                .collect();
            // The first fence that is active or has failed decides.
            argument.status = infos
                .iter()
                .map(|info| info.status)
                .find(|&status| status <= 0)
                .unwrap_or(STATUS_SIGNALED);
            user.write(argument.sync_fence_info, infos.as_bytes())?;
        }
        argument.name = text(&self.name());
        // Bounded by what a reservation holds, far below 2^32.
        argument.num_fences = self.fences().len() as u32;
        Ok(())
    }

    /// The status of all fences as one.
    ///
    /// The kernel's container of several fences collects their errors only if
    /// somebody waited for it while they were active. The model cannot see
    /// polls. It assumes that nobody waited, and shows no error.
    fn status_as_one(&self) -> i32 {
        match self.fences() {
            [one] => status(one),
            several => i32::from(several.iter().all(|fence| !fence.is_active())),
        }
    }

    fn name(&self) -> Vec<u8> {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let (context, seqno) = match self.fences() {
            [one] => (one.context(), one.seqno()),
            _ => (self.array_context, 1),
        };
        let (driver, timeline) = match self.fences() {
            [_, _, ..] if self.is_active() => ("dma_fence_array", "unbound".to_owned()),
            [first, ..] => first.names(),
            [] => return Vec::new(),
        };
        format!("{driver}-{timeline}{context}-{seqno}").into_bytes()
    }
}

impl SharedFileKind for ModelSyncFile {
    /// Whether the client's end is open anywhere.
    fn is_open(&self) -> bool {
        !has_hung_up(&self.socket)
    }

    fn poll(&self) -> PollFlags {
        if self.is_active() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    fn ioctl(&self, request: u32, arg: u64, user: &dyn Caller) -> Result<i32, Errno> {
        match request {
            sys::SYNC_MERGE => {
                let mut argument: sys::SyncMergeData = copy_in(user, arg)?;
                let merged = self.merge(&argument, user)?;
                user.install(merged, true, &mut |number| {
                    argument.fence = number;
                    copy_out(user, arg, &argument)
                })?;
            }
            sys::SYNC_FILE_INFO => {
                let mut argument: sys::SyncFileInfo = copy_in(user, arg)?;
                self.info(&mut argument, user)?;
                copy_out(user, arg, &argument)?;
            }
            abi::SYNC_SET_DEADLINE => {
                // A hint to drivers; this one has no use for it.
                let [_, pad]: [u64; 2] = copy_in(user, arg)?;
                if pad != 0 {
                    return Err(Errno::INVAL);
                }
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    }

    fn exported(&self) -> Option<&Exported> {
        Some(&self.exported)
    }
}

impl Watcher for ModelSyncFile {
    fn signalled(&self) {
        if self.is_active() {
            return;
        }
        if let Err(errno) = rustix::net::shutdown(&self.socket, Shutdown::Write) {
            tracing::error!(%errno, "cannot tell that a sync_file is signalled");
        }
    }
}

fn status(fence: &Fence) -> i32 {
    match fence.state() {
        FenceStatus::Active => 0,
        FenceStatus::Signaled => STATUS_SIGNALED,
        FenceStatus::Failed(errno) => -errno.raw_os_error(),
    }
}

fn fence_info(fence: &Fence) -> sys::SyncFenceInfo {
    let (driver, timeline) = fence.names();
    let status = status(fence);
    let ended = fence.ended_ns().filter(|_| status != 0);
    sys::SyncFenceInfo {
        obj_name: text(timeline.as_bytes()),
        driver_name: text(driver.as_bytes()),
        status,
        flags: 0,
        timestamp_ns: ended.unwrap_or_default().unsigned_abs(),
    }
}

/// A C string, cut so that its terminator fits.
fn text<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut text = [0; N];
    let len = bytes.len().min(N - 1);
    text[..len].copy_from_slice(&bytes[..len]);
    text
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_table_forgets_it_with_its_last_descriptor() {
        let fd = ModelSyncFile::create(Exported::default(), Vec::new()).unwrap();
        let copy = fd.try_clone().unwrap();
        let number = fd.as_raw_fd();
        let file = SharedFile::of(number).unwrap();
        let file = file.map(|file| Arc::downgrade(&file.0)).unwrap();
        drop(copy);
        shared_file::collect();
        assert!(file.upgrade().is_some());
        drop(fd);
        shared_file::collect();
        assert!(file.upgrade().is_none());
    }
}
