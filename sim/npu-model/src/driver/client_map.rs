// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap of the device node for clients in other processes: a file to map.
//!
//! On the kernel a mapping keeps its object and its open file. The model sees
//! neither munmap nor the end of another process. But the file that it hands
//! out holds a lock, which ends when the last descriptor and the last mapping
//! of it, in whatever process, are gone; and the model looks for that lock.
//!
//! It is a lock of the open file (`F_OFD_SETLK`) on one byte, whose position
//! says by which open file of the device the object is mapped. (The lock of a
//! dma-buf is of another kind, so that the two do not meet.)

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::Errno;

use super::gem::GemObject;
use super::release::FileState;
use crate::lock::lock;

/// What other processes have mapped, or had a moment ago: once for each
/// object and open file.
#[derive(Debug, Default)]
pub(super) struct ClientMaps(Mutex<Vec<ClientMap>>);

#[derive(Debug)]
struct ClientMap {
    // Dropped in this order: the object must be gone when the file goes.
    object: Arc<GemObject>,
    file: Arc<FileState>,
}

impl ClientMap {
    /// Whether anything but this keeps the object and its file: then it costs
    /// nothing to look later.
    fn is_spare(&self) -> bool {
        !self.is_of_closed() && self.object.has_handles()
    }

    /// Whether its open file was closed: then this may be the last to keep it.
    fn is_of_closed(&self) -> bool {
        self.file.space.life.is_closed()
    }

    /// Whether any process has it mapped, or is about to.
    fn is_mapped(&self) -> bool {
        let Some(pages) = self.object.pages().file() else {
            return false;
        };
        let mut probe = byte_lock(libc::F_WRLCK, self.file.map_lock);
        match fcntl(pages, FcntlArg::F_OFD_GETLK(&mut probe)) {
            Ok(_) => i32::from(probe.l_type) != libc::F_UNLCK,
            Err(_) => true,
        }
    }
}

/// Number of the next open file's byte.
static NEXT_LOCK: AtomicI64 = AtomicI64::new(0);

/// A byte that no other open file has.
pub(super) fn new_lock() -> i64 {
    NEXT_LOCK.fetch_add(1, Ordering::Relaxed)
}

/// A lock on one byte.
fn byte_lock(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        // Three small constants.
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

impl ClientMaps {
    /// Lets go of what no process has mapped any more by way of `file`. Returns
    /// whether anything is.
    pub(super) fn collect_of(&self, file: &Arc<FileState>) -> bool {
        let is_of = |map: &ClientMap| Arc::ptr_eq(&map.file, file);
        let mut maps = lock(&self.0);
        maps.retain(|map| !is_of(map) || map.is_mapped());
        maps.iter().any(is_of)
    }

    /// Lets go of what no process has mapped any more.
    pub(super) fn collect(&self) {
        let mut maps = lock(&self.0);
        if maps.iter().all(ClientMap::is_spare) {
            return;
        }
        let (closed, open): (Vec<_>, Vec<_>) = maps
            .extract_if(.., |map| !map.is_spare() && !map.is_mapped())
            .partition(ClientMap::is_of_closed);
        // Under the lock: a client that unmapped, closed the handle and makes a
        // new object gets the same addresses, whoever collects for it.
        drop(open);
        drop(maps);
        // Files may be released here, which waits.
        drop(closed);
    }

    /// Another process is about to map `object` by way of `file`, with the descriptor
    /// `fd` of it.
    ///
    /// # Errors
    /// `ENOLCK` where the host has no lock left.
    pub(super) fn add(
        &self,
        object: Arc<GemObject>,
        file: &Arc<FileState>,
        fd: &OwnedFd,
    ) -> Result<(), Errno> {
        // Under the lock of the list, so that nobody collects in between.
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
