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

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::Errno;
use rustix::mm::MapFlags;

use super::file::DrmFile;
use super::lock;
use super::mmap::Mapping;
use super::release::FileState;
use super::shared_file::own_fd;

/// What other processes have mapped, or had a moment ago: once for each
/// object and open file.
#[derive(Debug, Default)]
pub(super) struct ClientMaps(Mutex<Vec<ClientMap>>);

#[derive(Debug)]
struct ClientMap {
    /// Keeps object and file.
    mapping: Mapping,
    /// Byte of the lock.
    byte: i64,
}

impl ClientMap {
    /// Whether anything but this keeps the object and its file: then it costs
    /// nothing to look later.
    fn is_spare(&self) -> bool {
        let (object, _) = self.mapping.of();
        !self.is_of_closed() && object.has_handles()
    }

    /// Whether its open file was closed: then this may be the last to keep it.
    fn is_of_closed(&self) -> bool {
        let (_, file) = self.mapping.of();
        file.is_none_or(|file| file.is_closed())
    }

    /// Whether any process has it mapped, or is about to.
    fn is_mapped(&self) -> bool {
        let pages = self.mapping.of().0.pages();
        let Some(pages) = pages.file() else {
            return false;
        };
        let mut probe = byte_lock(libc::F_WRLCK, self.byte);
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

fn hold(file: BorrowedFd<'_>, byte: i64) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&byte_lock(libc::F_RDLCK, byte)))
        .map(drop)
        .map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

impl ClientMaps {
    /// Lets go of what no process has mapped any more by way of `file`. Returns
    /// whether anything is.
    pub(super) fn collect_of(&self, file: &Arc<FileState>) -> bool {
        let is_of = |map: &ClientMap| map.mapping.of().1.is_some_and(|by| Arc::ptr_eq(by, file));
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
}

impl DrmFile {
    /// mmap for another process: a file of which to map the first `len` bytes,
    /// shared. Object and open file live until all descriptors and mappings of
    /// it are gone, or a little longer; see [`Driver::collect`].
    ///
    /// [`Driver::collect`]: super::Driver::collect
    ///
    /// # Errors
    /// As [`mmap`](Self::mmap); `EOPNOTSUPP` with [`Backing::Heap`], `EMFILE`.
    ///
    /// [`Backing::Heap`]: super::Backing::Heap
    pub fn mmap_file(&self, offset: u64, len: usize, flags: MapFlags) -> Result<OwnedFd, Errno> {
        let (object, _) = self.mappable(offset, len, flags)?;
        let pages = object.pages().make_file()?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(own_fd(pages.as_raw_fd()))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        let file = OwnedFd::from(file);
        let byte = self.open().map_lock;
        // Under the lock of the list, so that nobody collects in between.
        let mut maps = lock(&self.device().client_maps.0);
        hold(file.as_fd(), byte)?;
        let known = maps.iter().any(|map| {
            let (other, by) = map.mapping.of();
            Arc::ptr_eq(other, &object) && by.is_some_and(|by| Arc::ptr_eq(by, self.open()))
        });
        if !known {
            let mapping = Mapping::shared(object, Arc::clone(self.open()));
            maps.push(ClientMap { mapping, byte });
        }
        Ok(file)
    }
}
