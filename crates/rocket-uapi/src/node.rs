// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device node of the kernel, with its dma-bufs and sync_files. Only this file makes
//! their ioctl and mmap calls.
//!
//! The calls go through the C library, so that a preload library can intercept them: tests
//! record the model in this way as if it were a board.

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

use crate::bound_cores::BoundCores;
use crate::caller::Caller;
use crate::calls::{device_info, is_busy};
use crate::error::{Error, Permission};
use crate::file::{DeviceInfo, FileOperations, MapRequest, MappedMemory, SharedFileOperations};
use crate::{Errno, sys};

/// How long the file must stay open after a job's end. The scheduler's worker drops the
/// job's BO references after the fence has signalled, and does not check the file. 20 ms
/// were enough in 300 of 300 runs on Linux 7.2; this leaves a margin.
pub const SETTLE: Duration = Duration::from_millis(50);

/// A job that ended within this time after SUBMIT was not killed.
///
/// The driver kills a job 500 ms after it handed the job to a core, which is after SUBMIT.
/// It counts in jiffies of at most 10 ms. A timer that is set late in a jiffy fires up to
/// one jiffy early, and earlier still if interrupts were off when it was set. Rounding
/// makes it fire later (505 ms were seen). A fifth of the limit is a margin for all of
/// that. Jobs that are planned for a fifth of the limit leave the same margin.
const NOT_KILLED_WITHIN: Duration = Duration::from_millis(400);

/// An open device node of the kernel.
#[derive(Debug)]
pub struct Node {
    fd: OwnedFd,
    path: PathBuf,
}

impl Node {
    /// Opens the character device at `path`, without checking its driver.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`], [`Error::NotADevice`], [`Error::NoPermission`], or another
    /// error of open(2).
    pub fn open(path: &Path) -> Result<Self, Error> {
        let metadata = fs::metadata(path).map_err(|error| not_opened(&error, None))?;
        if !metadata.file_type().is_char_device() {
            return Err(Error::NotADevice);
        }
        let file = fs::OpenOptions::new().read(true).write(true).open(path);
        Ok(Self {
            fd: file
                .map_err(|error| not_opened(&error, Some(&metadata)))?
                .into(),
            path: path.to_owned(),
        })
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const PERMISSION_BITS: u32 = 0o7777;

fn not_opened(error: &io::Error, metadata: Option<&fs::Metadata>) -> Error {
    match (error.kind(), metadata) {
        (io::ErrorKind::NotFound, _) => Error::NoSuchNode,
        (io::ErrorKind::PermissionDenied, Some(metadata)) => Error::NoPermission(Permission {
            mode: metadata.mode() & PERMISSION_BITS,
            group: name_of(metadata.gid(), "/etc/group"),
            user: Some(name_of(rustix::process::geteuid().as_raw(), "/etc/passwd")),
        }),
        _ => {
            let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
            Error::of("open", None, errno)
        }
    }
}

/// The name that `file`, /etc/group or /etc/passwd, has for a number, else the number. The files
/// are enough for users of a machine and avoid the C library's name services.
fn name_of(number: u32, file: &str) -> String {
    let entries = fs::read_to_string(file).unwrap_or_default();
    let name = entries.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| number.to_string())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// # Safety
/// `arg` is the argument that the file expects for this request: usually null, or valid for
/// as many bytes as the request number states. The same holds for the addresses in it.
unsafe fn ioctl(file: BorrowedFd<'_>, request: u32, arg: *mut c_void) -> Result<i32, Errno> {
    // SAFETY: the file may be any: an unknown ioctl fails. For known ones the caller
    // promises the argument.
    let value = unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, arg) };
    if value < 0 {
        return Err(last_errno());
    }
    Ok(value)
}

// SAFETY: these are properties of the `rocket` driver, read in its source (Linux 6.18 to
// 7.3) and observed on 7.2. Handles are unique in a file. The address is fixed for the BO's
// life and maps its pages, which come zeroed from shmem and are pinned. PREP_BO waits for
// the write fences of the BO's reservation object. The DRM core copies as many bytes in and
// out as the request number states (drm_ioctl.c).
unsafe impl FileOperations for Node {
    fn info(&self) -> DeviceInfo {
        let name = self.path.display().to_string();
        let cores = BoundCores::of(Path::new("/")).count_or(ChipProfile::RK3588.cores);
        device_info(self, name, false, cores)
    }

    fn settle(&self) -> Duration {
        SETTLE
    }

    unsafe fn ioctl(&self, request: u32, arg: &mut [u8], _: &dyn Caller) -> Result<i32, Errno> {
        // An argument shorter than the request states stands for a null pointer.
        let arg = if arg.is_empty() || arg.len() < sys::arg_len(request) {
            ptr::null_mut()
        } else {
            arg.as_mut_ptr().cast()
        };
        // SAFETY: the pointer is null or valid, see above; the caller promises the
        // addresses.
        unsafe { ioctl(self.as_fd(), request, arg) }
    }

    fn mmap(&self, request: &MapRequest) -> Result<Box<dyn MappedMemory>, Errno> {
        Ok(Box::new(Pages::map(self.as_fd(), request)?))
    }

    fn poll(&self) -> Result<i16, Errno> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::OUT)];
        rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
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
        // Both clocks stop while the machine sleeps.
        (since.elapsed() < NOT_KILLED_WITHIN).then_some(false)
    }
}

/// The kernel's dma-bufs and sync_files, which belong to no device.
#[derive(Debug)]
pub(crate) struct KernelFiles;

// SAFETY: the kernel's dma-bufs and sync_files copy as many bytes as the request number
// states (dma-buf.c, sync_file.c; Linux 7.2). A dma-buf never shrinks, and the bytes of a
// GEM object are zeroed before anybody sees them.
unsafe impl SharedFileOperations for KernelFiles {
    unsafe fn ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: u64,
        _: &dyn Caller,
    ) -> Result<i32, Errno> {
        let arg = usize::try_from(arg).map_err(|_| Errno::FAULT)?;
        // SAFETY: the caller promises it.
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

// SAFETY: a mapping belongs to the process, not to a thread, and this type only hands the
// pointer out and never dereferences it.
unsafe impl Send for Pages {}

// SAFETY: see above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps the file at an address that the kernel chooses, never over an existing mapping.
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
        // SAFETY: a new mapping without a fixed address replaces no other, and no reference
        // to it is made here.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { start, len })
    }
}

// SAFETY: `map` made the mapping, which does not move until it is dropped. Pages of files
// are initialised.
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
        // SAFETY: `start` and `len` are those of a successful mmap, which only this unmaps.
        // Users of the pointer know that it becomes invalid here.
        if unsafe { libc::munmap(self.start, self.len) } != 0 {
            let error = io::Error::last_os_error();
            tracing::error!(%error, "munmap failed; the mapping is leaked");
        }
    }
}
