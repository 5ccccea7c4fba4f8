// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device node of the kernel, and its dma-bufs and sync_files: the only place
//! that has their ioctl and mmap in it.
//!
//! By the C library, so that a preload library can stand between this process
//! and the node: tests record the model in this way as if it were a board.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io, ptr};

use nix::libc;
use rknpu_regcmd::ChipProfile;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{OFlags, SeekFrom};
use rustix::mm::MapFlags;

use crate::caller::Caller;
use crate::calls::{device_info, is_busy};
use crate::error::{Call, Error, Permission};
use crate::file::{DeviceInfo, FileOperations, MapRequest, SharedFileOperations};
use crate::mapped::MappedMemory;
use crate::{Errno, sys};

/// How long after a job's end the file must stay open: the scheduler's worker
/// drops the job's BO references behind the fence, without regard to the file.
/// 20 ms were enough in 300 of 300 runs on Linux 7.2; this leaves room.
pub const SETTLE: Duration = Duration::from_millis(50);

/// A job that ended so soon after SUBMIT was not killed.
///
/// The driver kills 500 ms after it handed a job to a core, which is after
/// SUBMIT. It counts in jiffies, of 10 ms at the longest: a timer that is set
/// late in one fires up to one early, and where interrupts were off for a while
/// when it was set, earlier by that much. What rounding there is makes it fire
/// later (505 ms were seen). A fifth of the limit is room for all of that, and
/// jobs that are planned for a fifth of it leave as much.
const SURVIVES: Duration = Duration::from_millis(400);

/// An open device node of the kernel.
#[derive(Debug)]
pub struct Node {
    fd: OwnedFd,
    path: PathBuf,
}

impl Node {
    /// Opens the character device at `path`, whatever it is.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`], [`Error::NotADevice`], [`Error::NoPermission`], or
    /// what else open(2) says.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            fd: open_node(path)?,
            path: path.to_owned(),
        })
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The part of a file's mode that is about permissions.
const PERMISSION_BITS: u32 = 0o7777;

/// Opens the character device at `path`, whatever it is.
///
/// # Errors
/// [`Error::NoSuchNode`], [`Error::NotADevice`], [`Error::NoPermission`], or
/// what else open(2) says.
fn open_node(path: &Path) -> Result<OwnedFd, Error> {
    let metadata = fs::metadata(path).map_err(|error| not_opened(&error, None))?;
    if !metadata.file_type().is_char_device() {
        return Err(Error::NotADevice);
    }
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(OwnedFd::from)
        .map_err(|error| not_opened(&error, Some(&metadata)))
}

fn not_opened(error: &io::Error, metadata: Option<&fs::Metadata>) -> Error {
    match (error.kind(), metadata) {
        (io::ErrorKind::NotFound, _) => Error::NoSuchNode,
        (io::ErrorKind::PermissionDenied, Some(metadata)) => Error::NoPermission(Permission {
            mode: metadata.mode() & PERMISSION_BITS,
            group: group_name(metadata.gid()).unwrap_or_else(|| metadata.gid().to_string()),
        }),
        _ => {
            let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
            Error::of(Call::Open, None, errno)
        }
    }
}

/// The group's name in /etc/group: enough for system groups, and no call into
/// the C library's name services.
fn group_name(gid: u32) -> Option<String> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// # Safety
/// `arg` is what the file takes with this request: mostly null, or valid for as
/// many bytes as the request says; and so are the addresses in it.
unsafe fn ioctl(file: BorrowedFd<'_>, request: u32, arg: *mut c_void) -> Result<i32, Errno> {
    // SAFETY: the file may be any: an ioctl that it does not know fails. For the
    // others the caller vouches.
    let value = unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, arg) };
    if value < 0 {
        return Err(last_errno());
    }
    Ok(value)
}

// SAFETY: what the `rocket` driver does, read in its source (Linux 6.18 to 7.3)
// and observed on 7.2: handles are unique in a file, the address is fixed for
// the BO's life and maps its pages, which come zeroed from shmem and are pinned;
// PREP_BO waits for the write fences of the BO's reservation object. The DRM core
// copies as many bytes as the request says in and out (drm_ioctl.c).
unsafe impl FileOperations for Node {
    fn info(&self) -> DeviceInfo {
        let name = self.path.display().to_string();
        // The uAPI has no way to ask for the cores.
        device_info(self, name, false, ChipProfile::RK3588.cores)
    }

    fn settle(&self) -> Duration {
        SETTLE
    }

    unsafe fn ioctl(&self, request: u32, arg: &mut [u8], _: &dyn Caller) -> Result<i32, Errno> {
        // A shorter argument than the request says stands for a null pointer.
        let arg = if arg.is_empty() || arg.len() < sys::arg_len(request) {
            ptr::null_mut()
        } else {
            arg.as_mut_ptr().cast()
        };
        // SAFETY: of the pointer see above; for addresses the caller vouches.
        unsafe { ioctl(self.as_fd(), request, arg) }
    }

    fn mmap(&self, request: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno> {
        Ok(Box::new(Pages::map(self.as_fd(), request)?))
    }

    fn poll(&self) -> Result<i16, Errno> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::OUT)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&at_once))?;
        Ok(fds[0].revents().bits() as i16)
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let before = rustix::fs::fcntl_getfl(&self.fd)?;
        rustix::fs::fcntl_setfl(&self.fd, before | OFlags::NONBLOCK)?;
        let read = rustix::io::read(&self.fd, into);
        rustix::fs::fcntl_setfl(&self.fd, before)?;
        read
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        Ok(Arc::new(Self::open(&self.path)?))
    }

    fn shared_files(&self) -> Arc<dyn SharedFileOperations> {
        Arc::new(KernelFiles)
    }

    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        is_busy(self, handle)
    }

    fn was_killed(&self, _: u32, since: Instant) -> Option<bool> {
        // Both clocks stand still while the machine sleeps.
        (since.elapsed() < SURVIVES).then_some(false)
    }
}

/// dma-bufs and sync_files of the kernel, which know nothing of devices.
#[derive(Debug)]
pub(crate) struct KernelFiles;

// SAFETY: the kernel's dma-bufs and sync_files copy as many bytes as the request
// says (dma-buf.c, sync_file.c; Linux 7.2); a dma-buf never shrinks, and the
// bytes of a GEM object are zeroed before anybody sees them.
unsafe impl SharedFileOperations for KernelFiles {
    unsafe fn ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: u64,
        _: &dyn Caller,
    ) -> Result<i32, Errno> {
        let arg = usize::try_from(arg).map_err(|_| Errno::FAULT)?;
        // SAFETY: what the caller promises.
        unsafe { ioctl(file, request, ptr::with_exposed_provenance_mut(arg)) }
    }

    fn seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        rustix::fs::seek(file, to)
    }

    fn mmap(
        &self,
        file: BorrowedFd<'_>,
        request: &MapRequest,
    ) -> Result<Box<dyn MappedMemory>, Errno> {
        Ok(Box::new(Pages::map(file, request)?))
    }
}

/// A mapping of a file of the kernel, unmapped when it is dropped.
#[derive(Debug)]
struct Pages {
    start: *mut c_void,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and the pointer
// is only handed out, never followed here.
unsafe impl Send for Pages {}

// SAFETY: see above.
unsafe impl Sync for Pages {}

impl Pages {
    /// At a place of the kernel's choice: never over a mapping that is there.
    fn map(file: BorrowedFd<'_>, request: &MapRequest) -> Result<Self, Errno> {
        let &MapRequest {
            offset,
            len,
            prot,
            flags,
        } = request;
        let flags = flags.difference(MapFlags::FIXED.union(MapFlags::FIXED_NOREPLACE));
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        let (prot, flags) = (prot.bits() as i32, flags.bits() as i32);
        // SAFETY: a new mapping at no given place takes nothing from anybody,
        // and no reference is made to it here.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { start, len })
    }
}

// SAFETY: `map` made it, at a place where it stays until it is dropped. Pages of
// files are initialised.
unsafe impl MappedMemory for Pages {
    fn as_ptr(&self) -> *mut u8 {
        self.start.cast()
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are those of a successful mmap, unmapped
        // only here; whoever used the pointer knows that it ends with this.
        if unsafe { libc::munmap(self.start, self.len) } != 0 {
            let error = io::Error::last_os_error();
            tracing::error!(%error, "a mapping stays");
        }
    }
}
