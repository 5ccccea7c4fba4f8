// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls and mappings of a device node, by the C library: the only place of
//! this crate that has them in it.
//!
//! By the C library, so that a preload library can stand between this process
//! and the node: a recording of the model that believes to record a board.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::{ptr, slice};

use npu_capture::BoBytes;
use npu_wire::Request;
use rocket_uapi::{FenceStatus, sys, words};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::service::is_call;

/// Bytes of a word that is copied at once.
const WORD_BYTES: usize = size_of::<AtomicU64>();

/// Requests whose arguments hold values only, neither addresses nor
/// descriptors.
const VALUES: [u32; 7] = [
    sys::CREATE_BO,
    sys::PREP_BO,
    sys::FINI_BO,
    sys::GEM_CLOSE,
    sys::GET_CAP,
    sys::GEM_FLINK,
    sys::GEM_OPEN,
];

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// # Safety
/// `arg` is null, or valid for what the driver does with it by `number`, and
/// so are the addresses in it.
unsafe fn ioctl(file: BorrowedFd<'_>, number: u32, arg: *mut c_void) -> Result<i32, Errno> {
    loop {
        // SAFETY: what the caller promises.
        let value = unsafe { libc::ioctl(file.as_raw_fd(), number as libc::Ioctl, arg) };
        if value >= 0 {
            return Ok(value);
        }
        match last_errno() {
            // A signal of this process is not one of the client's.
            Errno::INTR => (),
            errno => return Err(errno),
        }
    }
}

/// An ioctl with a structure of the size that its number says.
///
/// # Safety
/// Addresses in `arg` are valid for what the driver does with them.
unsafe fn with<T: FromBytes + IntoBytes + Immutable>(
    file: BorrowedFd<'_>,
    number: u32,
    arg: &mut T,
) -> Result<i32, Errno> {
    if size_of::<T>() < Request::arg_len(number) {
        return Err(Errno::INVAL);
    }
    // SAFETY: as long as the driver takes it for, and any bytes are good ones.
    unsafe { ioctl(file, number, ptr::from_mut(arg).cast()) }
}

/// An ioctl whose argument holds values only; `None` for any other. An
/// argument that is too short is none.
pub(super) fn values(
    node: BorrowedFd<'_>,
    number: u32,
    arg: &mut [u8],
) -> Option<Result<i32, Errno>> {
    if !VALUES.iter().any(|&known| is_call(number, known)) {
        return None;
    }
    let len = Request::arg_len(number);
    let Some(arg) = arg.get_mut(..len) else {
        // SAFETY: the driver does not follow a null pointer.
        return Some(unsafe { ioctl(node, number, ptr::null_mut()) });
    };
    // Aligned as the driver's structures are.
    let mut words = vec![0_u64; len.div_ceil(size_of::<u64>())];
    words.as_mut_bytes()[..len].copy_from_slice(arg);
    // SAFETY: as many bytes as the number says, which is how many DRM copies
    // in and out; there are no addresses in them.
    let result = unsafe { ioctl(node, number, words.as_mut_ptr().cast()) };
    arg.copy_from_slice(&words.as_bytes()[..len]);
    Some(result)
}

/// VERSION: its texts, as far as there is room for them.
pub(super) fn version(
    node: BorrowedFd<'_>,
    [name, date, description]: [&mut [u8]; 3],
) -> Result<sys::Version, Errno> {
    let mut arg = sys::Version {
        name_len: name.len() as u64,
        name: name.as_mut_ptr().expose_provenance() as u64,
        date_len: date.len() as u64,
        date: date.as_mut_ptr().expose_provenance() as u64,
        desc_len: description.len() as u64,
        desc: description.as_mut_ptr().expose_provenance() as u64,
        ..sys::Version::default()
    };
    // SAFETY: three addresses of slices that this function borrows alone, with
    // their lengths, which bound what the driver writes there.
    unsafe { with(node, sys::VERSION, &mut arg) }?;
    Ok(arg)
}

/// A job of a SUBMIT.
pub(super) struct OwnJob {
    pub(super) tasks: Vec<sys::Task>,
    pub(super) reads: Vec<u32>,
    pub(super) writes: Vec<u32>,
}

/// SUBMIT of these jobs.
pub(super) fn submit(node: BorrowedFd<'_>, jobs: &[OwnJob]) -> Result<i32, Errno> {
    let job = |job: &OwnJob| sys::Job {
        tasks: job.tasks.as_ptr().expose_provenance() as u64,
        in_bo_handles: job.reads.as_ptr().expose_provenance() as u64,
        out_bo_handles: job.writes.as_ptr().expose_provenance() as u64,
        task_count: job.tasks.len() as u32,
        task_struct_size: size_of::<sys::Task>() as u32,
        in_bo_handle_count: job.reads.len() as u32,
        out_bo_handle_count: job.writes.len() as u32,
    };
    let structures: Vec<_> = jobs.iter().map(job).collect();
    let mut arg = sys::Submit {
        jobs: structures.as_ptr().expose_provenance() as u64,
        job_count: structures.len() as u32,
        job_struct_size: size_of::<sys::Job>() as u32,
        reserved: 0,
    };
    // SAFETY: addresses of arrays that live to the end of this function, with
    // their lengths; the driver copies all of them before it returns.
    unsafe { with(node, sys::SUBMIT, &mut arg) }
}

/// SUBMIT that the driver refuses, or has nothing to do for: without jobs.
pub(super) fn submit_head(node: BorrowedFd<'_>, head: sys::Submit) -> Result<i32, Errno> {
    let mut arg = sys::Submit { jobs: 0, ..head };
    // SAFETY: at the null address the driver finds `EFAULT`.
    unsafe { with(node, sys::SUBMIT, &mut arg) }
}

/// PRIME_HANDLE_TO_FD. The descriptor is closed on exec.
pub(super) fn export(node: BorrowedFd<'_>, handle: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut arg = sys::PrimeHandle {
        handle,
        flags: flags | sys::DRM_CLOEXEC,
        fd: -1,
    };
    // SAFETY: values only.
    unsafe { with(node, sys::PRIME_HANDLE_TO_FD, &mut arg) }?;
    owned(arg.fd)
}

/// PRIME_FD_TO_HANDLE.
pub(super) fn import(node: BorrowedFd<'_>, fd: i32, flags: u32) -> Result<u32, Errno> {
    let mut arg = sys::PrimeHandle {
        handle: 0,
        flags,
        fd,
    };
    // SAFETY: values only; that of a descriptor that is not open is `EBADF`.
    unsafe { with(node, sys::PRIME_FD_TO_HANDLE, &mut arg) }?;
    Ok(arg.handle)
}

/// GEM_CLOSE.
pub(super) fn gem_close(node: BorrowedFd<'_>, handle: u32) -> Result<i32, Errno> {
    let mut arg = sys::GemClose { handle, pad: 0 };
    // SAFETY: values only.
    unsafe { with(node, sys::GEM_CLOSE, &mut arg) }
}

/// PREP_BO.
pub(super) fn prep(node: BorrowedFd<'_>, mut arg: sys::PrepBo) -> Result<i32, Errno> {
    // SAFETY: values only.
    unsafe { with(node, sys::PREP_BO, &mut arg) }
}

fn owned(number: i32) -> Result<OwnedFd, Errno> {
    if number < 0 {
        return Err(Errno::IO);
    }
    // SAFETY: an ioctl that opens a descriptor for this process has succeeded,
    // and said this number; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The state of those who write an object, or wrote it last: by the sync_file
/// of its dma-buf, as PREP_BO does not tell.
pub(super) fn write_fence(node: BorrowedFd<'_>, handle: u32) -> Result<FenceStatus, Errno> {
    // The first export of an object decides for all later ones.
    let dma_buf = export(node, handle, sys::DRM_RDWR)?;
    let mut fences = sys::ExportSyncFile {
        flags: sys::DMA_BUF_SYNC_READ,
        fd: -1,
    };
    // SAFETY: values only.
    unsafe { with(dma_buf.as_fd(), sys::EXPORT_SYNC_FILE, &mut fences) }?;
    let sync_file = owned(fences.fd)?;
    // Without room for single fences: the state of all together.
    let mut info = sys::SyncFileInfo::default();
    // SAFETY: the only address is null, with room for nothing.
    unsafe { with(sync_file.as_fd(), sys::SYNC_FILE_INFO, &mut info) }?;
    Ok(match info.status {
        sys::SYNC_STATUS_ACTIVE => FenceStatus::Active,
        1.. => FenceStatus::Signaled,
        errno => FenceStatus::Failed(Errno::from_raw_os_error(errno.saturating_neg())),
    })
}

/// A buffer object, mapped to be read.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut c_void,
    len: usize,
}

// SAFETY: the mapping is of the process, not of a thread, and only read.
unsafe impl Send for Mapping {}

// SAFETY: see above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn of(node: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        // SAFETY: a new mapping, where the kernel finds room for it.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                node.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { start, len })
    }
}

impl BoBytes for Mapping {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let start = usize::try_from(offset).unwrap_or(self.len).min(self.len);
        let len = into.len().min(self.len - start);
        let (copied, beyond) = into.split_at_mut(len);
        // SAFETY: whole pages are mapped from `start` on, so they are aligned
        // for words, as many as `len` bytes reach into, until this is dropped;
        // a page of a buffer object is initialised and never goes. Clients and
        // the NPU write them meanwhile, as atomics allow; of what is copied
        // then nothing is concluded. They are only loaded, relaxed and in
        // whole words, which reads pages that cannot be written too.
        let words: &[AtomicU64] =
            unsafe { slice::from_raw_parts(self.start.cast(), self.len.div_ceil(WORD_BYTES)) };
        words::load(words, start, copied);
        beyond.fill(0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `of`, and nobody has the address.
        unsafe { libc::munmap(self.start, self.len) };
    }
}
