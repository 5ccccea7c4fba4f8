// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a trace, which only this process writes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Placeholder for the number of the process in a file name.
const PROCESS: &str = "%p";

/// An open file with a lock on it. The kernel releases the lock when the process has ended in any
/// way, and so have its children that only forked.
#[derive(Debug)]
pub(crate) struct TraceFile {
    pub(super) file: File,
    /// Name of the file, with the number of the process.
    pub(crate) path: PathBuf,
    /// Whether it is neither a device nor a pipe.
    is_file: bool,
}

impl TraceFile {
    /// Opens `path`, in which `%p` stands for the number of the process, and leaves its contents.
    ///
    /// # Errors
    /// The file cannot be written, or another process (or another trace of this
    /// one) writes it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = match path.to_str() {
            Some(text) => PathBuf::from(text.replace(PROCESS, &std::process::id().to_string())),
            None => path.to_owned(),
        };
        let mut options = OpenOptions::new();
        // Not before it is locked: until then the contents may belong to another process.
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        // A device or a pipe has nothing to lose, and others may use it too.
        let is_file = file.metadata()?.is_file();
        if is_file {
            lock(&file)?;
        }
        Ok(Self {
            file,
            path,
            is_file,
        })
    }

    /// Removes the contents that an earlier process left.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if self.is_file {
            self.file.set_len(0)
        } else {
            Ok(())
        }
    }
}

/// Locks `file` for this process.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "another process writes its trace to this file; put {PROCESS} into the name for \
                 one file per process"
            ),
        )),
        // Without locks in the file system the trace is written all the same.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}
