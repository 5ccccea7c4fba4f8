// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap of the device node by other processes: the model gives them a file to map.
//!
//! In the kernel a mapping keeps its object and its open file alive. The model sees
//! neither munmap nor the end of another process. So the file that it gives away
//! holds a lock, which ends when the last descriptor and the last mapping of that
//! file are gone, in any process. The model tests the lock.
//!
//! It is a lock of the open file (`F_OFD_SETLK`) on one byte. The position of the
//! byte identifies the open file of the device by which the object is mapped. (A
//! dma-buf has a lock of another kind, so the two do not conflict.)

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::Errno;

use crate::base::lock::lock;
use crate::files::release::FileState;
use crate::objects::gem::GemObject;

/// Current and recent mappings of other processes, one entry for each object and
/// open file.
#[derive(Debug, Default)]
pub(crate) struct ClientMaps(Mutex<Vec<ClientMap>>);

#[derive(Debug)]
struct ClientMap {
    // Fields drop in this order: the object must be gone before the file.
    object: Arc<GemObject>,
    file: Arc<FileState>,
}

impl ClientMap {
    /// Whether something else keeps the object and its file alive too. Checking
    /// such an entry can wait.
    fn is_spare(&self) -> bool {
        !self.is_of_closed() && self.object.has_handles()
    }

    /// Whether its open file was closed. Then this entry may hold the last
    /// reference to it.
    fn is_of_closed(&self) -> bool {
        self.file.space.life.is_closed()
    }

    /// Whether any process has it mapped, or is about to.
    fn is_mapped(&self) -> bool {
        let Some(pages) = self.object.pages.file() else {
            return false;
        };
        let mut probe = byte_lock(libc::F_WRLCK, self.file.map_lock);
        match fcntl(pages, FcntlArg::F_OFD_GETLK(&mut probe)) {
            Ok(_) => i32::from(probe.l_type) != libc::F_UNLCK,
            Err(_) => true,
        }
    }
}

/// Lock byte of the next open file.
static NEXT_LOCK: AtomicI64 = AtomicI64::new(0);

/// A lock byte that no other open file uses.
pub(crate) fn new_lock() -> i64 {
    NEXT_LOCK.fetch_add(1, Ordering::Relaxed)
}

fn byte_lock(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        // Small constants, so the casts fit.
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

impl ClientMaps {
    /// Drops the entries of `file` that no process maps any more. Returns whether
    /// any is left.
    pub(crate) fn collect_of(&self, file: &Arc<FileState>) -> bool {
        let is_of = |map: &ClientMap| Arc::ptr_eq(&map.file, file);
        let mut maps = lock(&self.0);
        maps.retain(|map| !is_of(map) || map.is_mapped());
        maps.iter().any(is_of)
    }

    /// Drops the entries that no process maps any more.
    pub(crate) fn collect(&self) {
        let mut maps = lock(&self.0);
        if maps.iter().all(ClientMap::is_spare) {
            return;
        }
        let (closed, open): (Vec<_>, Vec<_>) = maps
            .extract_if(.., |map| !map.is_spare() && !map.is_mapped())
            .partition(ClientMap::is_of_closed);
        // Drop these under the lock. A client that unmaps, closes the handle and
        // creates an object then gets the same address, even if another thread
        // collects.
        drop(open);
        drop(maps);
        // This may release files, which waits, so it happens without the lock.
        drop(closed);
    }

    /// Adds an entry before another process maps `object` by `file`, through the
    /// descriptor `fd`, and locks `fd`.
    ///
    /// # Errors
    /// `ENOLCK` if the host has no lock left.
    pub(crate) fn add(
        &self,
        object: Arc<GemObject>,
        file: &Arc<FileState>,
        fd: &OwnedFd,
    ) -> Result<(), Errno> {
        // Lock the list first, so that no thread collects in between.
        let mut maps = lock(&self.0);
        let hold = byte_lock(libc::F_RDLCK, file.map_lock);
        fcntl(fd.as_fd(), FcntlArg::F_OFD_SETLK(&hold))
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
        let is_same =
            |map: &ClientMap| Arc::ptr_eq(&map.object, &object) && Arc::ptr_eq(&map.file, file);
        if !maps.iter().any(is_same) {
            let file = Arc::clone(file);
            maps.push(ClientMap { object, file });
        }
        Ok(())
    }
}
