// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a client other than the device node: dma-bufs, sync_files and sw_sync
//! timelines, and the table that finds them by descriptor.
//!
//! In the kernel such a file answers ioctl, poll, lseek and mmap itself. Here a
//! descriptor is one of the host's, of a kind that does as much as possible by
//! itself and can be passed to any process:
//!
//! | file | descriptor | by itself |
//! |---|---|---|
//! | dma-buf | the object's memfd, opened anew | mmap, size |
//! | sync_file | one end of a socket pair | poll for reading |
//! | sw_sync | one end of a socket pair | nothing |
//!
//! Each has a separate inode, which every copy of the descriptor shares, also a
//! copy from another process. So the table is by inode. [`SharedFile`] does the
//! rest. There is one table for the process, since the kernel's files belong to no
//! driver: one device finds the fences and dma-bufs of another.

use std::collections::HashMap;
use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex};

use rocket_uapi::{Caller, MapRequest};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::base::lock::lock;
use crate::objects::gem::GemObject;
use crate::objects::mapping::Mapping;
use crate::objects::resv::Exported;

/// Identity of a file of the host: its device and inode.
type FileId = (u64, u64);

/// The file behind a descriptor of this process.
///
/// # Errors
/// `EBADF` for a number that is not open.
pub(crate) fn file_id(fd: RawFd) -> Result<FileId, Errno> {
    let metadata = std::fs::metadata(own_fd(fd)).map_err(|_| Errno::BADF)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The path by which this process reaches one of its own descriptors.
fn own_fd(fd: RawFd) -> String {
    format!("/proc/self/fd/{fd}")
}

/// Opens the file behind a descriptor of this process anew.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`.
pub(crate) fn open_anew(file: BorrowedFd<'_>, writable: bool) -> Result<OwnedFd, Errno> {
    let mut options = OpenOptions::new();
    let opened = options
        .read(true)
        .write(writable)
        .open(own_fd(file.as_raw_fd()));
    let errno = |error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM);
    opened.map(OwnedFd::from).map_err(errno)
}

/// A dma-buf, a sync_file or a sw_sync timeline of the model, with the operations
/// on its descriptor.
#[derive(Clone, Debug)]
pub struct SharedFile(pub(crate) Arc<dyn SharedFileKind>);

/// The operations of such a file. The defaults are those of a file without the
/// operation.
pub(crate) trait SharedFileKind: fmt::Debug + Send + Sync {
    fn is_open(&self) -> bool;

    fn ioctl(&self, request: u32, arg: u64, user: &dyn Caller) -> Result<i32, Errno>;

    fn poll(&self) -> PollFlags {
        PollFlags::IN | PollFlags::OUT
    }

    fn seek(&self, _: SeekFrom) -> Result<u64, Errno> {
        Err(Errno::SPIPE)
    }

    fn mmap(&self, _: &MapRequest) -> Result<Mapping, Errno> {
        Err(Errno::NODEV)
    }

    /// Whether [`Self::mmap`] would succeed.
    fn check_mmap(&self, _: &MapRequest) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }

    /// The object of a dma-buf.
    fn object(&self) -> Option<&Arc<GemObject>> {
        None
    }

    /// The fences of a sync_file.
    fn exported(&self) -> Option<&Exported> {
        None
    }
}

/// The files of which a client has, or recently had, a descriptor.
static FILES: LazyLock<Mutex<HashMap<FileId, Arc<dyn SharedFileKind>>>> =
    LazyLock::new(Mutex::default);

/// Locks the table while `make` makes a descriptor and adds its file. Nothing is
/// collected meanwhile.
pub(crate) fn install<T>(
    make: impl FnOnce(&mut HashMap<FileId, Arc<dyn SharedFileKind>>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    make(&mut lock(&FILES))
}

/// Makes a file whose descriptor is one end of a socket pair. `make` gets the other
/// end, which the model keeps. Returns the file and its descriptor.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`, and those of `make`.
pub(crate) fn with_socket<F: SharedFileKind + 'static>(
    make: impl FnOnce(OwnedFd) -> Result<Arc<F>, Errno>,
) -> Result<(Arc<F>, OwnedFd), Errno> {
    // Drop closed files first, to free their descriptors.
    collect();
    let (socket, client) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let id = file_id(client.as_raw_fd())?;
    let file = make(socket)?;
    lock(&FILES).insert(id, Arc::<F>::clone(&file));
    Ok((file, client))
}

/// Held while closed files are dropped. So when [`collect`] returns, they are gone,
/// even if another thread took them out of the table.
static COLLECTING: Mutex<()> = Mutex::new(());

/// Drops the files whose descriptors are all closed.
pub(crate) fn collect() {
    let _collecting = lock(&COLLECTING);
    let mut closed = Vec::new();
    lock(&FILES).retain(|_, file| {
        let open = file.is_open();
        if !open {
            closed.push(Arc::clone(file));
        }
        open
    });
    // These may be the last references, so drop them without the lock.
    drop(closed);
}

impl SharedFile {
    /// The file of the model behind a descriptor of this process; `None` if the
    /// descriptor is not the model's.
    ///
    /// # Errors
    /// `EBADF` for a number that is not open.
    pub fn of(fd: RawFd) -> Result<Option<Self>, Errno> {
        let id = file_id(fd)?;
        // A file that nobody has open is stale: its inode was reused.
        let found = lock(&FILES).get(&id).filter(|file| file.is_open()).cloned();
        Ok(found.map(Self))
    }

    /// An ioctl. `arg` is the argument as the client passes it, mostly an
    /// address in `user`.
    ///
    /// # Errors
    /// The errno that the kernel returns; see `docs/driver.md`.
    pub fn ioctl(&self, request: u32, arg: u64, user: &dyn Caller) -> Result<i32, Errno> {
        self.0.ioctl(request, arg, user)
    }

    /// lseek, which gives the size of a dma-buf.
    ///
    /// # Errors
    /// `EINVAL` for anything but the start and the end, `ESPIPE` for any other
    /// file.
    pub fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        self.0.seek(to)
    }

    /// poll without waiting: the events of `wanted` that are set. A dma-buf is
    /// readable when no job writes it any more, and writable when none uses it. A
    /// sync_file is readable when its fences are signalled.
    ///
    /// To wait for a dma-buf, export a sync_file and poll that.
    #[must_use]
    pub fn poll(&self, wanted: PollFlags) -> PollFlags {
        self.0.poll() & wanted
    }

    /// mmap of a dma-buf.
    ///
    /// # Errors
    /// `EINVAL` beyond the end of a dma-buf and for a private mapping,
    /// `ENODEV` for any other file.
    pub fn mmap(&self, request: &MapRequest) -> Result<Mapping, Errno> {
        self.0.mmap(request)
    }

    /// Checks whether mmap would succeed, for a client in another process. The
    /// client then maps the descriptor from its start, whatever the offset.
    ///
    /// # Errors
    /// As [`mmap`](Self::mmap).
    pub fn check_mmap(&self, request: &MapRequest) -> Result<(), Errno> {
        self.0.check_mmap(request)
    }

    /// The file behind a descriptor of `user`, if it is one of the model's.
    pub(crate) fn of_caller(fd: RawFd, user: &dyn Caller) -> Option<Self> {
        Self::of(user.descriptor(fd).ok()?.number()).ok()?
    }
}

/// Whether the other end of a socket pair is closed everywhere.
pub(crate) fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Reads an ioctl's structure, as `copy_from_user`.
pub(crate) fn copy_in<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
    user: &(impl Caller + ?Sized),
    arg: u64,
) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    user.read(arg, value.as_mut_bytes())?;
    Ok(value)
}

/// Writes an ioctl's structure back, as `copy_to_user`.
pub(crate) fn copy_out<T: zerocopy::IntoBytes + zerocopy::Immutable + ?Sized>(
    user: &(impl Caller + ?Sized),
    arg: u64,
    value: &T,
) -> Result<(), Errno> {
    user.write(arg, value.as_bytes())
}
