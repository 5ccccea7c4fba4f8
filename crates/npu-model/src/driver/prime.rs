// SPDX-License-Identifier: MIT OR Apache-2.0
//! PRIME: buffer objects as file descriptors, and back.
//!
//! What is exported is the memfd behind the object, opened anew. Such a file
//! is known again at import by its inode; any other file is foreign, and the
//! rocket driver cannot import those.
//!
//! A dma-buf keeps its object alive. Whether any copy of the exported
//! descriptor is still open, in whatever process, is asked of the kernel: the
//! exported open file holds a lock (flock belongs to the open file and ends
//! with its last descriptor), and the device tries to take it.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::gem::Object;
use super::lock;

/// Identity of a file of this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

/// The dma-bufs of one device.
#[derive(Debug, Default)]
pub(super) struct DmaBufs {
    exported: Mutex<HashMap<FileId, Arc<Object>>>,
}

/// The path by which this process reaches one of its own descriptors.
fn own_fd(fd: RawFd) -> String {
    format!("/proc/self/fd/{fd}")
}

fn errno(error: &std::io::Error, otherwise: Errno) -> Errno {
    Errno::from_io_error(error).unwrap_or(otherwise)
}

impl DmaBufs {
    /// Makes a file descriptor of `object`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for heap pages, else what opening a file gives
    /// (`EMFILE`, `ENFILE`).
    pub(super) fn export(&self, object: &Arc<Object>) -> Result<OwnedFd, Errno> {
        let pages = object.pages().fd().ok_or(Errno::OPNOTSUPP)?;
        // Held all along: `collect` takes the file lock for a moment.
        let mut exported = lock(&self.exported);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(own_fd(pages.as_raw_fd()))
            .map_err(|error| errno(&error, Errno::MFILE))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
        let metadata = file
            .metadata()
            .map_err(|error| errno(&error, Errno::INVAL))?;
        let id = FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        exported.insert(id, Arc::clone(object));
        Ok(file.into())
    }

    /// The object behind a file descriptor of this process.
    ///
    /// # Errors
    /// `EBADF` for a number that is not open, `EINVAL` for any file that
    /// this device has not exported.
    pub(super) fn find(&self, fd: RawFd) -> Result<Arc<Object>, Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        let metadata = std::fs::metadata(own_fd(fd)).map_err(|_| Errno::BADF)?;
        let id = FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let found = lock(&self.exported).get(&id).cloned();
        found.ok_or(Errno::INVAL)
    }

    /// Lets go of objects whose exported descriptors are all closed.
    pub(super) fn collect(&self) {
        let mut exported = lock(&self.exported);
        let mut closed = Vec::new();
        exported.retain(|_, object| {
            let open = still_open(object);
            if !open {
                closed.push(Arc::clone(object));
            }
            open
        });
        drop(exported);
        // Here the last references may go, without the lock.
        drop(closed);
    }
}

/// Whether an exported descriptor of `object` is open anywhere.
fn still_open(object: &Object) -> bool {
    let Some(pages) = object.pages().fd() else {
        return false;
    };
    match rustix::fs::flock(pages, FlockOperation::NonBlockingLockExclusive) {
        Err(_) => true,
        Ok(()) => {
            // Nobody else has the file; the lock must not stay, or the next
            // export could not take its own.
            let _ = rustix::fs::flock(pages, FlockOperation::Unlock);
            false
        }
    }
}
