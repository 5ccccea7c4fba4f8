// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that a client gets besides the device node: dma-bufs, sync_files
//! and timelines of its own, and the table that finds them by descriptor.
//!
//! In the kernel such a file answers ioctl, poll, lseek and mmap itself. Here
//! a descriptor is one of the host's, chosen so that it behaves as far as it
//! can by itself, and can be passed on to any process:
//!
//! | file | descriptor | by itself |
//! |---|---|---|
//! | dma-buf | the object's memfd, opened anew | mmap, size |
//! | sync_file | one end of a socket pair | poll for reading |
//! | sw_sync | one end of a socket pair | nothing |
//!
//! Each has an inode of its own, which every copy of the descriptor shares,
//! also one that came from another process; so the table is by inode. What
//! the descriptor does not do by itself is asked of [`SharedFile`]. The table
//! is one for the process, as the kernel's files are not any driver's: fences
//! and dma-bufs of one device are found by another.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex};

use rocket_uapi::{Caller, MapRequest, UserMemory};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::gem::GemObject;
use super::mapping::Mapping;
use super::resv::Exported;
use crate::lock::lock;

/// Identity of a file of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl FileId {
    /// The file behind a descriptor of this process.
    ///
    /// # Errors
    /// `EBADF` for a number that is not open.
    pub(super) fn of(fd: RawFd) -> Result<Self, Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        let metadata = std::fs::metadata(own_fd(fd)).map_err(|_| Errno::BADF)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// The path by which this process reaches one of its own descriptors.
pub(super) fn own_fd(fd: RawFd) -> String {
    format!("/proc/self/fd/{fd}")
}

/// A dma-buf, a sync_file or a timeline of the model, which answers what a client
/// asks of its descriptor.
#[derive(Clone, Debug)]
pub struct SharedFile(pub(super) Arc<dyn SharedFileKind>);

/// What such a file answers; what is given here is right for any file without a
/// function of its own for it.
pub(super) trait SharedFileKind: fmt::Debug + Send + Sync {
    /// Whether any process has a descriptor of it.
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

/// The files of which a client has, or had a moment ago, a descriptor.
static FILES: LazyLock<Mutex<HashMap<FileId, Arc<dyn SharedFileKind>>>> =
    LazyLock::new(Mutex::default);

/// Puts a file into the table while `make` makes its descriptor. Nothing is
/// collected meanwhile.
pub(super) fn install<T>(
    make: impl FnOnce(&mut HashMap<FileId, Arc<dyn SharedFileKind>>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    make(&mut lock(&FILES))
}

/// Makes a file whose descriptor is one end of a socket pair; `make` gets the
/// other end, which is the model's. Returns the file and its descriptor.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`, and those of `make`.
pub(super) fn with_socket<F: SharedFileKind + 'static>(
    make: impl FnOnce(OwnedFd) -> Result<Arc<F>, Errno>,
) -> Result<(Arc<F>, OwnedFd), Errno> {
    // Files of others that are closed by now make room.
    collect();
    let (socket, client) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let id = FileId::of(client.as_raw_fd())?;
    let file = make(socket)?;
    lock(&FILES).insert(id, Arc::<F>::clone(&file));
    Ok((file, client))
}

/// Held while files are let go of, so that nobody who collects, such as a file
/// that is closed, finds one neither in the table nor gone.
static COLLECTING: Mutex<()> = Mutex::new(());

/// Lets go of files whose descriptors are all closed.
pub(super) fn collect() {
    let _collecting = lock(&COLLECTING);
    let mut closed = Vec::new();
    lock(&FILES).retain(|_, file| {
        let open = file.is_open();
        if !open {
            closed.push(Arc::clone(file));
        }
        open
    });
    // Here the last references may go, without the lock.
    drop(closed);
}

impl SharedFile {
    /// The file of the model behind a descriptor of this process; `None` if
    /// the descriptor is of something else, for which the host answers.
    ///
    /// # Errors
    /// `EBADF` for a number that is not open.
    pub fn of(fd: RawFd) -> Result<Option<Self>, Errno> {
        let id = FileId::of(fd)?;
        // One that nobody has open is a left-over, whose inode has come back.
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

    /// poll without waiting: which of `wanted` are there. A dma-buf can be
    /// read when no job writes it any more and written when none uses it; a
    /// sync_file can be read when its fences are signalled.
    ///
    /// To wait for a dma-buf, export a sync_file and poll that.
    #[must_use]
    pub fn poll(&self, wanted: PollFlags) -> PollFlags {
        self.0.poll() & wanted
    }

    /// mmap.
    ///
    /// # Errors
    /// `EINVAL` beyond the end of a dma-buf and for a private mapping,
    /// `ENODEV` for any other file.
    pub fn mmap(&self, request: &MapRequest) -> Result<Mapping, Errno> {
        self.0.mmap(request)
    }

    /// Whether mmap would succeed, for a client in another process: it then maps
    /// the same descriptor from its start, whatever the offset.
    ///
    /// # Errors
    /// As [`mmap`](Self::mmap).
    pub fn check_mmap(&self, request: &MapRequest) -> Result<(), Errno> {
        self.0.check_mmap(request)
    }

    /// The file behind a descriptor of `user`, if it is one of the model's.
    pub(super) fn of_caller(fd: RawFd, user: &dyn Caller) -> Option<Self> {
        Self::of(user.descriptor(fd).ok()?.number()).ok()?
    }
}

/// Whether the other end of a socket pair is closed everywhere.
pub(super) fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = rustix::event::poll(&mut fds, Some(&at_once));
    polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Reads an ioctl's structure, as `copy_from_user`.
pub(super) fn copy_in<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
    user: &(impl UserMemory + ?Sized),
    arg: u64,
) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    user.read(arg, value.as_mut_bytes())
        .map_err(|_| Errno::FAULT)?;
    Ok(value)
}

/// Writes an ioctl's structure back, as `copy_to_user`.
pub(super) fn copy_out<T: zerocopy::IntoBytes + zerocopy::Immutable + ?Sized>(
    user: &(impl UserMemory + ?Sized),
    arg: u64,
    value: &T,
) -> Result<(), Errno> {
    user.write(arg, value.as_bytes()).map_err(|_| Errno::FAULT)
}
