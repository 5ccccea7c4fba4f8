// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real device as what is served: each open file of a client is one of the
//! node, and what the client does there is done here, by this process.
//!
//! What is in the client's memory is copied to this process's and back;
//! descriptors are handed across; buffer objects are mapped by the client, from
//! the node itself. dma-bufs and sync_files are the kernel's own, and the
//! client's ioctls of them go to the kernel without a way round.
//!
//! Only requests of which is known what they do with their arguments are handed
//! on: others might follow addresses of another process, and some of the DRM
//! core's bring the kernel down on an accel node (GET_UNIQUE).

#[allow(unsafe_code)]
mod raw;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use npu_capture::BoBytes;
use npu_model::driver::{Caller, Descriptor, Wake};
use rknpu_regcmd::ChipProfile;
use rocket_uapi::{Deadline, DeviceInfo, FenceStatus, SETTLE, sys};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mm::MapFlags;
use zerocopy::{FromBytes, IntoBytes};

use self::raw::{Mapping, OwnJob};
use crate::jobs::{Jobs, NotRead};
use crate::service::{MapOf, OpenFile, PAGE, Service, changes_handles, is_call};

/// How long the kernel waits at a time for a buffer object: so late does a
/// client hear of a signal.
const WAIT_SLICE: Duration = Duration::from_millis(10);

/// How long the jobs of a file are waited for that is closed, before its
/// handles are: the kernel itself gives a process that ends no longer.
const LAST_JOBS: Duration = Duration::from_secs(1);

/// Longest text of VERSION, bytes; the driver's have at most 10.
const TEXT_BYTES: usize = 256;

/// Letter of DRM's requests (`DRM_IOCTL_BASE`).
const DRM_LETTER: u32 = b'd' as u32;

/// Numbers of a driver's own requests (`DRM_COMMAND_BASE` to
/// `DRM_COMMAND_END`).
const DRIVER_REQUESTS: std::ops::Range<u32> = 0x40..0xa0;

/// A node cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.display())]
pub struct NodeError {
    path: PathBuf,
    error: rocket_uapi::Error,
}

/// Serves a device node.
#[derive(Debug)]
pub struct ForwardService {
    path: PathBuf,
    info: DeviceInfo,
    work: Arc<Work>,
}

/// What was submitted.
#[derive(Debug, Default)]
struct Work {
    tasks: AtomicU64,
    words: AtomicU64,
}

impl ForwardService {
    /// Serves the node at `path`, if it is an NPU's.
    ///
    /// # Errors
    /// [`NodeError`] if it is not there, not to be opened, or another driver's.
    pub fn new(path: &Path) -> Result<Self, NodeError> {
        let info = rocket_uapi::open_node(path).and_then(|node| {
            let info = info(node.as_fd(), path).map_err(|_| rocket_uapi::Error::NotADevice)?;
            rocket_uapi::check_driver(&info.driver)?;
            Ok(info)
        });
        match info {
            Ok(info) => Ok(Self {
                path: path.to_owned(),
                info,
                work: Arc::default(),
            }),
            Err(error) => Err(NodeError {
                path: path.to_owned(),
                error,
            }),
        }
    }

    /// What the device says of itself.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Programs that were submitted, and their command words, those of jobs
    /// that the driver dropped included.
    #[must_use]
    pub fn tasks_and_words(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.work.tasks), get(&self.work.words))
    }
}

fn info(node: BorrowedFd<'_>, path: &Path) -> Result<DeviceInfo, Errno> {
    let mut texts = [[0; TEXT_BYTES]; 3];
    let [name, date, description] = &mut texts;
    let version = raw::version(node, [name, date, description])?;
    let text = |bytes: &[u8], len: u64| {
        let len = usize::try_from(len).map_or(bytes.len(), |len| len.min(bytes.len()));
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    Ok(DeviceInfo {
        name: path.display().to_string(),
        driver: text(&texts[0], version.name_len),
        version: (
            version.version_major,
            version.version_minor,
            version.version_patchlevel,
        ),
        description: text(&texts[2], version.desc_len),
        is_model: false,
        // The uAPI has no way to ask.
        cores: ChipProfile::RK3588.cores,
    })
}

impl Service for ForwardService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        let node = rocket_uapi::open_node(&self.path).map_err(|error| {
            tracing::warn!(%error, "the node does not open any more");
            match error {
                rocket_uapi::Error::NoSuchNode => Errno::NOENT,
                rocket_uapi::Error::NoPermission(_) => Errno::ACCESS,
                rocket_uapi::Error::OutOfFileDescriptors { .. } => Errno::MFILE,
                rocket_uapi::Error::Refused { errno, .. } => errno,
                _ => Errno::NODEV,
            }
        })?;
        Ok(Box::new(ForwardFile {
            node,
            work: Arc::clone(&self.work),
            handles: Mutex::default(),
            submitted: AtomicBool::new(false),
        }))
    }

    /// The client opens the system's own, if there is one.
    fn open_sw_sync(&self) -> Result<OwnedFd, Errno> {
        Err(Errno::NOENT)
    }

    /// The kernel knows its own files, and the client has them.
    fn file_ioctl(
        &self,
        _: BorrowedFd<'_>,
        _: u32,
        _: u64,
        _: &dyn Caller,
    ) -> Result<Option<i32>, Errno> {
        Ok(None)
    }

    fn collect(&self) {}

    fn is_emulated(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct ForwardFile {
    node: OwnedFd,
    work: Arc<Work>,
    /// Open handles, and the bytes behind each.
    handles: Mutex<BTreeMap<u32, u64>>,
    /// Whether there ever was a job.
    submitted: AtomicBool,
}

impl OpenFile for ForwardFile {
    fn ioctl(&self, number: u32, arg: &mut [u8], caller: &dyn Caller) -> Result<i32, Errno> {
        if number >> 8 & 0xff != DRM_LETTER {
            return Err(Errno::NOTTY);
        }
        let is = |known| is_call(number, known);
        if is(sys::SUBMIT) {
            self.submit(arg_of(number, arg)?, caller)
        } else if is(sys::PREP_BO) {
            self.prep(number, arg, caller.wake())
        } else if is(sys::VERSION) {
            update(number, arg, |arg| self.version(arg, caller))
        } else if is(sys::PRIME_HANDLE_TO_FD) {
            update(number, arg, |arg| self.handle_to_fd(arg, caller))
        } else if is(sys::PRIME_FD_TO_HANDLE) {
            update(number, arg, |arg| self.fd_to_handle(arg, caller))
        } else if let Some(result) = self.values(number, arg) {
            result
        } else {
            tracing::debug!(number, "a request that is not handed on");
            let of_driver = DRIVER_REQUESTS.contains(&(number & 0xff));
            // As today's driver says, and as the core of what it lacks.
            Err(if of_driver {
                Errno::INVAL
            } else {
                Errno::OPNOTSUPP
            })
        }
    }

    fn mmap(&self, offset: u64, _: usize, _: MapFlags) -> Result<MapOf, Errno> {
        // The rest is between the client and the kernel.
        let file = rustix::io::fcntl_dupfd_cloexec(&self.node, 0)?;
        Ok(MapOf { file, offset })
    }

    fn contents(&self, offset: u64, len: usize) -> Result<Box<dyn BoBytes>, Errno> {
        Ok(Box::new(Mapping::of(self.node.as_fd(), offset, len)?))
    }

    fn write_fence(&self, handle: u32) -> Result<FenceStatus, Errno> {
        raw::write_fence(self.node.as_fd(), handle)
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.handles().get(&handle).copied()
    }

    /// The kernel knows of the client's mappings, and keeps the file for them.
    fn is_mapped(&self) -> bool {
        false
    }

    /// In the order that keeps clear of a bug of the driver's, which frees the
    /// file before objects that need it (see docs/uapi.md). At last the node is
    /// closed, which waits for its queue.
    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        let handles = std::mem::take(&mut *self.handles());
        let submitted = self.submitted.load(Ordering::Relaxed);
        let written = || handles.keys().copied().filter(|_| submitted);
        let is_busy = |handle, until: Deadline| {
            let arg = sys::PrepBo {
                handle,
                reserved: 0,
                timeout_ns: until.as_nanos(),
            };
            let waited = raw::prep(self.node.as_fd(), arg);
            matches!(waited, Err(Errno::BUSY | Errno::TIMEDOUT))
        };
        if is_ending() && written().any(|handle| is_busy(handle, Deadline::NOW)) {
            died();
        }
        let until = Deadline::after(LAST_JOBS);
        for handle in written() {
            // What still runs then, the kernel waits for.
            let _ = is_busy(handle, until);
        }
        for &handle in handles.keys() {
            let _ = raw::gem_close(self.node.as_fd(), handle);
        }
        if submitted {
            thread::sleep(SETTLE);
        }
    }
}

impl ForwardFile {
    fn handles(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An ioctl whose argument holds values only; `None` for any other.
    fn values(&self, number: u32, arg: &mut [u8]) -> Option<Result<i32, Errno>> {
        let node = self.node.as_fd();
        if !changes_handles(number) {
            return raw::values(node, number, arg);
        }
        // See there.
        let mut handles = self.handles();
        let result = raw::values(node, number, arg)?;
        if result.is_ok() {
            note(&mut handles, number, arg);
        }
        Some(result)
    }
}

/// An ioctl that holds values only was done well.
fn note(handles: &mut BTreeMap<u32, u64>, number: u32, arg: &[u8]) {
    if is_call(number, sys::CREATE_BO)
        && let Ok((bo, _)) = sys::CreateBo::read_from_prefix(arg)
    {
        handles.insert(bo.handle, u64::from(bo.size).next_multiple_of(PAGE));
    } else if is_call(number, sys::GEM_CLOSE)
        && let Ok((bo, _)) = sys::GemClose::read_from_prefix(arg)
    {
        handles.remove(&bo.handle);
    } else if is_call(number, sys::GEM_OPEN)
        && let Ok((bo, _)) = sys::GemOpen::read_from_prefix(arg)
    {
        handles.insert(bo.handle, bo.size);
    }
}

impl ForwardFile {
    fn submit(&self, arg: &[u8], caller: &dyn Caller) -> Result<i32, Errno> {
        let node = self.node.as_fd();
        let jobs = match Jobs::read(arg, caller) {
            Ok(jobs) => jobs.0,
            Err(NotRead::Head(head)) => return raw::submit_head(node, head),
            Err(NotRead::TooMany) => {
                tracing::warn!("a SUBMIT of more than is handed on");
                return Err(Errno::NOMEM);
            }
            Err(NotRead::Fault) => return Err(Errno::FAULT),
        };
        let own = jobs.into_iter().map(|job| OwnJob {
            tasks: job.tasks.iter().map(crate::jobs::structure).collect(),
            reads: job.reads,
            writes: job.writes,
        });
        let own: Vec<_> = own.collect();
        self.submitted.store(true, Ordering::Relaxed);
        let value = raw::submit(node, &own)?;
        for task in own.iter().flat_map(|job| &job.tasks) {
            self.work.tasks.fetch_add(1, Ordering::Relaxed);
            let words = u64::from(task.regcmd_count);
            self.work.words.fetch_add(words, Ordering::Relaxed);
        }
        Ok(value)
    }

    /// PREP_BO in slices, so that a signal in the client ends it.
    fn prep(&self, number: u32, arg: &mut [u8], wake: Wake<'_>) -> Result<i32, Errno> {
        let arg: sys::PrepBo = structure(arg_of(number, arg)?);
        let until = arg.timeout_ns;
        let can_wait = Deadline::NOW.as_nanos() < until && !passed(until);
        loop {
            let slice = Deadline::after(WAIT_SLICE).as_nanos().min(until);
            let part = sys::PrepBo {
                timeout_ns: slice,
                ..arg
            };
            match raw::prep(self.node.as_fd(), part) {
                Err(Errno::TIMEDOUT | Errno::BUSY) if can_wait => {
                    if slice == until {
                        return Err(Errno::TIMEDOUT);
                    }
                    if is_interrupted(wake) {
                        return Err(Errno::INTR);
                    }
                }
                other => return other,
            }
        }
    }

    fn version(&self, arg: &mut sys::Version, caller: &dyn Caller) -> Result<(), Errno> {
        let mut texts = [[0; TEXT_BYTES]; 3];
        let [name, date, description] = &mut texts;
        let version = raw::version(self.node.as_fd(), [name, date, description])?;
        let rooms = [
            (arg.name, arg.name_len, version.name_len),
            (arg.date, arg.date_len, version.date_len),
            (arg.desc, arg.desc_len, version.desc_len),
        ];
        for (text, (to, room, len)) in texts.iter().zip(rooms) {
            // As much as fits, without a terminator; no address, no text.
            let fits = usize::try_from(room.min(len)).unwrap_or(TEXT_BYTES);
            let fits = &text[..fits.min(TEXT_BYTES)];
            if to != 0 && !fits.is_empty() {
                caller.write(to, fits).map_err(|_| Errno::FAULT)?;
            }
        }
        *arg = sys::Version {
            name: arg.name,
            date: arg.date,
            desc: arg.desc,
            ..version
        };
        Ok(())
    }

    fn handle_to_fd(&self, arg: &mut sys::PrimeHandle, caller: &dyn Caller) -> Result<(), Errno> {
        let file = raw::export(self.node.as_fd(), arg.handle, arg.flags)?;
        let close_on_exec = arg.flags & sys::DRM_CLOEXEC != 0;
        caller.install(file, close_on_exec, &mut |number| {
            arg.fd = number;
            Ok(())
        })
    }

    fn fd_to_handle(&self, arg: &mut sys::PrimeHandle, caller: &dyn Caller) -> Result<(), Errno> {
        let file = caller.descriptor(arg.fd)?;
        let mut handles = self.handles();
        arg.handle = raw::import(self.node.as_fd(), file.number(), arg.flags)?;
        handles.insert(arg.handle, file_bytes(&file));
        Ok(())
    }
}

/// Bytes of a dma-buf; 0 if the kernel will not say.
fn file_bytes(file: &Descriptor) -> u64 {
    let own = format!("/proc/self/fd/{}", file.number());
    std::fs::metadata(own).map_or(0, |found| found.len())
}

/// Whether a time of the monotonic clock, nanoseconds, has passed.
fn passed(time: i64) -> bool {
    Deadline::after(Duration::ZERO).as_nanos() >= time
}

/// Whether the client wants the end of its wait.
fn is_interrupted(wake: Wake<'_>) -> bool {
    match wake {
        Wake::Signal => false,
        Wake::Now => true,
        Wake::Readable(socket) => {
            let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
            let at_once = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let polled = rustix::event::poll(&mut fds, Some(&at_once));
            polled.is_ok() && !fds[0].revents().is_empty()
        }
    }
}

/// The argument; `EFAULT` if the client could not read all of it.
fn arg_of(number: u32, arg: &[u8]) -> Result<&[u8], Errno> {
    arg.get(..npu_wire::Request::arg_len(number))
        .ok_or(Errno::FAULT)
}

/// A structure of which the client has sent as much as it knows.
fn structure<T: FromBytes + IntoBytes>(arg: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let bytes = value.as_mut_bytes();
    let len = arg.len().min(bytes.len());
    bytes[..len].copy_from_slice(&arg[..len]);
    value
}

/// Lets `action` work on the argument; it goes back even after an error.
fn update<T: FromBytes + IntoBytes + zerocopy::Immutable>(
    number: u32,
    arg: &mut [u8],
    action: impl FnOnce(&mut T) -> Result<(), Errno>,
) -> Result<i32, Errno> {
    let mut value = structure::<T>(arg_of(number, arg)?);
    let result = action(&mut value);
    let len = arg.len().min(size_of::<T>());
    arg[..len].copy_from_slice(&value.as_bytes()[..len]);
    result.map(|()| 0)
}
