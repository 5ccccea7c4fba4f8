// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seam over a device node: with its two modules the only place that has
//! ioctl and mmap in it.
//!
//! The `drm` crate is not used for the three core ioctls needed here (VERSION,
//! GEM_CLOSE, PRIME_HANDLE_TO_FD): there the last two belong to the interface
//! for display devices, and implementing it would put the bus-id ioctl, which
//! crashes the kernel on an accel node, within everybody's reach.

mod files;
mod ioctl;

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use rknpu_regcmd::{ChipProfile, Iova};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{OFlags, SeekFrom};
use rustix::mm::{MapFlags, ProtFlags};

use crate::Errno;
use crate::backend::{Backend, BoMemory, DeviceInfo, RawBo, RawJob};
use crate::discover;
use crate::error::{Call, Error};
use crate::raw::{RawDevice, RawMap};
use crate::sharing::{SharedMemory, Sharing};
use crate::sys;
use crate::units::{ByteLen, Deadline, Handle};

pub(crate) use files::KernelFiles;
use ioctl::{PrimeToHandle, Request, ioctl, plain_ioctl};

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

/// Room for each text of VERSION, bytes; the driver's are at most 10 long.
const VERSION_TEXT_BYTES: usize = 64;

/// An open accel node.
#[derive(Debug)]
pub(crate) struct Kernel {
    fd: OwnedFd,
    path: PathBuf,
    info: DeviceInfo,
}

impl Kernel {
    /// Asks the device behind `fd` what it is.
    ///
    /// # Errors
    /// What it says to VERSION.
    pub(crate) fn new(fd: OwnedFd, path: PathBuf) -> Result<Self, Errno> {
        let info = version(fd.as_fd(), path.display().to_string())?;
        Ok(Self { fd, path, info })
    }

    /// The DRM driver's name.
    pub(crate) fn driver(&self) -> &str {
        &self.info.driver
    }

    /// Maps a BO that was just created.
    fn map(&self, offset: u64, len: ByteLen, handle: Handle) -> Result<MmapRaw, Error> {
        MmapOptions::new()
            .offset(offset)
            .len(len.page_rounded().get())
            .map_raw(&self.fd)
            .map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                match errno {
                    Errno::NOMEM => Error::OutOfMemory { len },
                    _ => Error::of(Call::Mmap, Some(handle), errno),
                }
            })
    }
}

fn version(fd: BorrowedFd<'_>, name: String) -> Result<DeviceInfo, Errno> {
    let mut driver = [0_u8; VERSION_TEXT_BYTES];
    let mut description = [0_u8; VERSION_TEXT_BYTES];
    let mut argument = sys::Version {
        name_len: driver.len() as u64,
        name: driver.as_mut_ptr().expose_provenance() as u64,
        desc_len: description.len() as u64,
        desc: description.as_mut_ptr().expose_provenance() as u64,
        ..sys::Version::default()
    };
    // SAFETY: `name` and `desc` are the addresses of arrays of this function
    // with as many bytes as `name_len` and `desc_len` say, nothing else refers
    // to them during the call; `date_len` is 0, so `date` is not followed.
    unsafe { ioctl(fd, &mut argument) }?;
    let text = |bytes: &[u8], len: u64| {
        let len = usize::try_from(len).map_or(bytes.len(), |len| len.min(bytes.len()));
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    Ok(DeviceInfo {
        name,
        driver: text(&driver, argument.name_len),
        version: (
            argument.version_major,
            argument.version_minor,
            argument.version_patchlevel,
        ),
        description: text(&description, argument.desc_len),
        is_model: false,
        // The uAPI has no way to ask.
        cores: ChipProfile::RK3588.cores,
    })
}

/// A mapping that `map` made.
#[derive(Debug)]
struct BoPages(MmapRaw);

// SAFETY: an `MmapRaw` of `map` is a shared, readable and writable mapping of
// all pages of a BO, `len()` bytes long, at a fixed place until it is dropped.
// GEM pages come zeroed from shmem and are pinned. Only jobs that use the BO
// and holders of the pointer write them: the handle is this file's, and a
// `DmaBuf`, by which others could, ends all CPU access through this crate.
unsafe impl BoMemory for BoPages {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: what the `rocket` driver does, read in its source (Linux 6.18 to 7.3)
// and observed on 7.2: handles are unique in a file, the address is fixed for
// the BO's life and maps its pages, PREP_BO waits for the write fences of the
// BO's reservation object.
unsafe impl Backend for Kernel {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        let mut argument = sys::CreateBo {
            // Below 2 GiB, so it fits.
            size: len.get() as u32,
            ..sys::CreateBo::default()
        };
        plain_ioctl(self.fd.as_fd(), &mut argument).map_err(|errno| match errno {
            // ENOSPC is what the address allocator says when it is full.
            Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory { len },
            _ => Error::of(Call::CreateBo, None, errno),
        })?;
        let handle = Handle::new(argument.handle)
            .ok_or_else(|| Error::of(Call::CreateBo, None, Errno::BADMSG))?;
        let made = u32::try_from(argument.dma_address)
            .map_err(|_| Error::AddressTooHigh {
                address: argument.dma_address,
            })
            .and_then(|iova| Ok((iova, self.map(argument.offset, len, handle)?)));
        match made {
            Ok((iova, memory)) => Ok(RawBo {
                handle,
                iova: Iova(iova),
                memory: Box::new(BoPages(memory)),
            }),
            Err(error) => {
                if let Err(error) = self.close_bo(handle) {
                    tracing::error!(%error, "cannot close a buffer object that could not be used");
                }
                Err(error)
            }
        }
    }

    fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut argument = sys::GemClose {
            handle: handle.get(),
            pad: 0,
        };
        plain_ioctl(self.fd.as_fd(), &mut argument)
            .map_err(|errno| Error::of(Call::GemClose, Some(handle), errno))
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        let mut argument = sys::PrepBo {
            handle: handle.get(),
            reserved: 0,
            timeout_ns: until.as_nanos(),
        };
        plain_ioctl(self.fd.as_fd(), &mut argument).map_err(|errno| match errno {
            // EBUSY where the deadline had passed before the call.
            Errno::BUSY | Errno::TIMEDOUT => Error::TimedOut { handle },
            _ => Error::of(Call::PrepBo, Some(handle), errno),
        })
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut argument = sys::FiniBo {
            handle: handle.get(),
            reserved: 0,
        };
        plain_ioctl(self.fd.as_fd(), &mut argument)
            .map_err(|errno| Error::of(Call::FiniBo, Some(handle), errno))
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        let refused = |errno| Error::of(Call::Submit, None, errno);
        let placed: Vec<_> = jobs.iter().map(PlacedJob::new).collect();
        let structures = placed
            .iter()
            .map(PlacedJob::structure)
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| refused(Errno::INVAL))?;
        let mut argument = sys::Submit {
            jobs: address(&structures),
            job_count: count(&structures).ok_or_else(|| refused(Errno::INVAL))?,
            job_struct_size: size_of::<sys::Job>() as u32,
            reserved: 0,
        };
        // SAFETY: `jobs` is the address of `job_count` structures in
        // `structures`; in each, the three addresses are those of vectors in
        // `placed` with as many elements as the counts beside them say. Both
        // live past the call, and SUBMIT copies from them before it returns. What the
        // NPU does with the words is the caller's promise.
        unsafe { ioctl(self.fd.as_fd(), &mut argument) }.map_err(refused)
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        let mut argument = sys::PrimeHandle {
            handle: handle.get(),
            flags: sys::DRM_CLOEXEC | sys::DRM_RDWR,
            fd: -1,
        };
        plain_ioctl(self.fd.as_fd(), &mut argument)
            .map_err(|errno| Error::of(Call::PrimeExport, Some(handle), errno))?;
        // SAFETY: PRIME_HANDLE_TO_FD succeeded, so `fd` is a descriptor that
        // the kernel has just opened for this process; nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(argument.fd) })
    }

    fn was_killed(&self, _: Handle, since: Instant) -> Option<bool> {
        // Both clocks stand still while the machine sleeps.
        (since.elapsed() < SURVIVES).then_some(false)
    }

    fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let refused = |errno| Error::of(Call::PrimeImport, None, errno);
        let mut argument = PrimeToHandle(sys::PrimeHandle {
            handle: 0,
            flags: 0,
            fd: dma_buf.as_raw_fd(),
        });
        plain_ioctl(self.fd.as_fd(), &mut argument).map_err(refused)?;
        Handle::new(argument.0.handle).ok_or_else(|| refused(Errno::BADMSG))
    }

    fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn SharedMemory>, Error> {
        files::map(dma_buf)
    }

    fn sharing(&self) -> Option<Arc<dyn Sharing>> {
        Some(Arc::new(KernelFiles))
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(discover::open(&self.path)?))
    }

    fn settle(&self) -> Duration {
        SETTLE
    }

    fn raw(&self) -> Option<&dyn RawDevice> {
        Some(self)
    }
}

/// The arrays of one job.
struct PlacedJob {
    tasks: Vec<sys::Task>,
    reads: Vec<u32>,
    writes: Vec<u32>,
}

impl PlacedJob {
    fn new(job: &RawJob<'_>) -> Self {
        let tasks = job.tasks.iter().map(|task| sys::Task {
            regcmd: task.regcmd.0,
            regcmd_count: task.words,
        });
        let handles = |list: &[Handle]| list.iter().map(|bo| bo.get()).collect();
        Self {
            tasks: tasks.collect(),
            reads: handles(job.reads),
            writes: handles(job.writes),
        }
    }

    fn structure(&self) -> Option<sys::Job> {
        Some(sys::Job {
            tasks: address(&self.tasks),
            in_bo_handles: address(&self.reads),
            out_bo_handles: address(&self.writes),
            task_count: count(&self.tasks)?,
            task_struct_size: size_of::<sys::Task>() as u32,
            in_bo_handle_count: count(&self.reads)?,
            out_bo_handle_count: count(&self.writes)?,
        })
    }
}

/// The address of an array, for the kernel to read from.
fn address<T>(array: &[T]) -> u64 {
    array.as_ptr().expose_provenance() as u64
}

/// The length of an array as the uAPI counts.
fn count<T>(array: &[T]) -> Option<u32> {
    u32::try_from(array.len()).ok()
}

/// A mapping made by a driver test.
#[derive(Debug)]
struct TestMap {
    start: *mut c_void,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and the pointer
// is only handed out, never followed here.
unsafe impl Send for TestMap {}

impl RawMap for TestMap {
    fn as_ptr(&self) -> *mut u8 {
        self.start.cast()
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for TestMap {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are those of a successful mmap of this
        // file, unmapped only here; whoever used the pointer knows that it
        // ends with this value.
        if let Err(errno) = unsafe { rustix::mm::munmap(self.start, self.len) } {
            tracing::error!(%errno, "cannot unmap a test's mapping");
        }
    }
}

impl RawDevice for Kernel {
    unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<i32, Errno> {
        // SAFETY: what the caller promises.
        unsafe { self.file_ioctl(self.fd.as_fd(), request, arg) }
    }

    unsafe fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: Option<&mut [u8]>,
    ) -> Result<i32, Errno> {
        let request = Request {
            number: request,
            argument: arg.map_or(ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast()),
        };
        // SAFETY: what the caller promises.
        unsafe { rustix::ioctl::ioctl(file, request) }
    }

    fn file_seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        rustix::fs::seek(file, to)
    }

    fn mmap(
        &self,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Box<dyn RawMap>, Errno> {
        // At a place of the kernel's choice: never over a mapping that is
        // there.
        let flags = flags.difference(MapFlags::FIXED.union(MapFlags::FIXED_NOREPLACE));
        // SAFETY: a new mapping at no given place takes nothing from anybody,
        // and no reference is made to it here.
        let start =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, flags, &self.fd, offset) }?;
        Ok(Box::new(TestMap { start, len }))
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
}
