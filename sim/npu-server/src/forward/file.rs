// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open file of the node for a client in another process.
//!
//! It passes on only requests whose use of their arguments is known. Others
//! might follow addresses of another process, and some of the DRM core's take
//! the kernel down on an accel node (GET_UNIQUE).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rocket_uapi::sys::HandleChange;
use rocket_uapi::{
    Arena, Caller, ClientJob, Deadline, Descriptor, FileLayer, MapRequest, Node, PAGE_BYTES,
    ReadJobsError, SETTLE, Wake, export, ioctl, ioctl_bytes, is_unfinished, plain_ioctl, prep_bo,
    sys, version,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::service::OpenFile;

/// Longest single wait of the kernel for a buffer object. A client's signal
/// takes effect this late.
const WAIT_SLICE: Duration = Duration::from_millis(10);

/// How long a close waits for the file's jobs before it closes the handles. The
/// kernel itself gives an ending process no longer.
const LAST_JOBS: Duration = Duration::from_secs(1);

/// Numbers of a driver's own requests (`DRM_COMMAND_BASE` to
/// `DRM_COMMAND_END`).
const DRIVER_REQUESTS: std::ops::Range<u32> = 0x40..0xa0;

/// Requests whose arguments hold values only, neither addresses nor
/// descriptors, and that do not wait.
const VALUES: [u32; 4] = [sys::CREATE_BO, sys::FINI_BO, sys::GEM_CLOSE, sys::GET_CAP];

/// Amount of work submitted to the node, by all clients.
#[derive(Debug, Default)]
pub(super) struct SubmittedWork {
    /// Number of programs.
    pub(super) tasks: u64,
    /// Number of their command words.
    pub(super) words: u64,
}

/// An open file of the node, for one client.
#[derive(Debug)]
pub(super) struct ForwardFile {
    node: Node,
    work: Arc<Mutex<SubmittedWork>>,
    /// Open handles, and the bytes behind each.
    handles: Mutex<BTreeMap<u32, u64>>,
    /// Whether there ever was a job.
    submitted: AtomicBool,
}

// SAFETY: the operations are those of the node, which keeps the promises.
unsafe impl FileLayer for ForwardFile {
    type Below = Node;

    fn below(&self) -> &Node {
        &self.node
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        if sys::letter(request) != sys::letter(sys::VERSION) {
            return Err(Errno::NOTTY);
        }
        let is = |known| sys::is_call(request, known);
        if is(sys::SUBMIT) {
            // SAFETY: what the caller promises.
            unsafe { self.submit(arg_of(request, arg)?, caller) }
        } else if is(sys::PREP_BO) {
            self.prep(sys::structure(arg_of(request, arg)?), caller.wake())
        } else if is(sys::VERSION) {
            update(request, arg, |arg| self.version(arg, caller))
        } else if is(sys::PRIME_HANDLE_TO_FD) {
            update(request, arg, |arg| self.handle_to_fd(arg, caller))
        } else if is(sys::PRIME_FD_TO_HANDLE) {
            update(request, arg, |arg| self.fd_to_handle(arg, caller))
        } else if VALUES.iter().any(|&known| is(known)) {
            self.values(request, arg)
        } else {
            // The errors of today's driver, and of the core for what it lacks.
            Err(if DRIVER_REQUESTS.contains(&(request & 0xff)) {
                tracing::warn!(request, "this ioctl of the driver is not forwarded");
                Errno::INVAL
            } else {
                tracing::debug!(request, "this ioctl is not forwarded");
                Errno::OPNOTSUPP
            })
        }
    }
}

impl OpenFile for ForwardFile {
    fn client_map(&self, request: &MapRequest) -> Result<(OwnedFd, u64), Errno> {
        // The client maps it, and the kernel checks the request.
        let file = rustix::io::fcntl_dupfd_cloexec(&self.node, 0)?;
        Ok((file, request.offset))
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.handles().get(&handle).copied()
    }

    /// The kernel knows of the client's mappings, and keeps the file for them.
    fn is_mapped(&self) -> bool {
        false
    }

    /// Releases objects before the file. This avoids a bug of the driver, which
    /// frees the file before objects that need it (see docs/uapi.md). At the
    /// end the node is closed, which waits for its queue.
    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        let handles = std::mem::take(&mut *self.handles());
        let submitted = self.submitted.load(Ordering::Relaxed);
        let written = || handles.keys().copied().filter(|_| submitted);
        let is_busy = |handle, until: Deadline| {
            let waited = prep_bo(&self.node, handle, until);
            waited.is_err_and(is_unfinished)
        };
        if is_ending() && written().any(|handle| is_busy(handle, Deadline::NOW)) {
            died();
        }
        let until = Deadline::after(LAST_JOBS);
        for handle in written() {
            // The kernel waits for jobs that still run.
            let _ = is_busy(handle, until);
        }
        for &handle in handles.keys() {
            let mut bo = sys::GemClose { handle, pad: 0 };
            // SAFETY: there are no addresses in it, and this process has no buffers of the file.
            let _ = unsafe { ioctl(&self.node, sys::GEM_CLOSE, &mut bo, &Arena::new()) };
        }
        if submitted {
            thread::sleep(SETTLE);
        }
    }
}

impl ForwardFile {
    pub(super) fn new(node: Node, work: Arc<Mutex<SubmittedWork>>) -> Self {
        Self {
            node,
            work,
            handles: Mutex::default(),
            submitted: AtomicBool::new(false),
        }
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An ioctl whose argument holds values only, of any length.
    fn values(&self, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        // Lock the table first, so that one such request passes at a time.
        let book = HandleChange::can_come_of(request).then(|| self.handles());
        // A signal of this process is not one of the client's.
        // SAFETY: there are no addresses in it, and this process has no buffers of the file.
        let value = unsafe { ioctl_bytes(&self.node, request, arg, &Arena::new()) }?;
        if let Some(mut handles) = book {
            match HandleChange::of(request, arg) {
                Some(HandleChange::Created(bo)) => {
                    let bytes = u64::from(bo.size).next_multiple_of(PAGE_BYTES as u64);
                    handles.insert(bo.handle, bytes);
                }
                Some(HandleChange::Closed(handle)) => {
                    handles.remove(&handle);
                }
                // `fd_to_handle` handles imports: their argument has a
                // descriptor.
                Some(HandleChange::Imported(_)) | None => (),
            }
        }
        Ok(value)
    }

    /// # Safety
    /// As for SUBMIT.
    unsafe fn submit(&self, arg: &[u8], caller: &dyn Caller) -> Result<i32, Errno> {
        let arena = Arena::new();
        let jobs = match ClientJob::read_all(arg, caller) {
            Ok(jobs) => jobs,
            Err(ReadJobsError::BadArgument(head)) => {
                // With a null address the driver returns `EFAULT`, if it reads
                // the jobs.
                let mut head = sys::Submit { jobs: 0, ..head };
                // SAFETY: the only address is null.
                return unsafe { ioctl(&self.node, sys::SUBMIT, &mut head, &arena) };
            }
            Err(ReadJobsError::TooMany) => {
                tracing::warn!("SUBMIT exceeds the limit for forwarding");
                return Err(Errno::NOMEM);
            }
            Err(ReadJobsError::Fault) => return Err(Errno::FAULT),
        };
        // Locked until the driver has looked the handles up, so that none of them is closed.
        let handles = self.handles();
        let is_queued = |job: &&ClientJob| {
            let stays = job.cannot_be_queued(|handle| handles.contains_key(&handle));
            if stays {
                tracing::warn!(
                    "a job with an unknown handle or a task without words is not forwarded"
                );
            }
            !stays
        };
        let jobs: Vec<_> = jobs.iter().filter(is_queued).collect();
        let mut submit = ClientJob::submit_all(jobs.iter().copied(), &arena)?;
        self.submitted.store(true, Ordering::Relaxed);
        // SAFETY: all addresses are `arena`'s, and the driver copies what is
        // there before it returns; the rest is the caller's promise.
        let value = unsafe { ioctl(&self.node, sys::SUBMIT, &mut submit, &arena) }?;
        drop(handles);
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        for task in jobs.iter().flat_map(|job| &job.tasks) {
            work.tasks += 1;
            work.words += u64::from(task.regcmd_count);
        }
        Ok(value)
    }

    /// PREP_BO in slices, so that a signal in the client ends it.
    fn prep(&self, arg: sys::PrepBo, wake: Wake<'_>) -> Result<i32, Errno> {
        let until = arg.timeout_ns;
        let can_wait =
            Deadline::NOW.as_nanos() < until && !Deadline::from_nanos(until).has_passed();
        loop {
            let slice = Deadline::after(WAIT_SLICE).as_nanos().min(until);
            let mut part = sys::PrepBo {
                timeout_ns: slice,
                ..arg
            };
            match plain_ioctl(&self.node, sys::PREP_BO, &mut part) {
                Err(errno) if is_unfinished(errno) && can_wait => {
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
        let (structure, texts) = version(&self.node)?;
        let rooms = [
            (arg.name, arg.name_len),
            (arg.date, arg.date_len),
            (arg.desc, arg.desc_len),
        ];
        for (text, (to, room)) in texts.iter().zip(rooms) {
            // Copies as much as fits, without a terminator; nothing to a null
            // address.
            let fits = usize::try_from(room).map_or(text.len(), |room| room.min(text.len()));
            if to != 0 && fits > 0 {
                caller.write(to, &text[..fits])?;
            }
        }
        *arg = sys::Version {
            name: arg.name,
            date: arg.date,
            desc: arg.desc,
            ..structure
        };
        Ok(())
    }

    fn handle_to_fd(&self, arg: &mut sys::PrimeHandle, caller: &dyn Caller) -> Result<(), Errno> {
        let close_on_exec = arg.flags & sys::DRM_CLOEXEC != 0;
        let file = export(&self.node, arg.handle, arg.flags | sys::DRM_CLOEXEC)?;
        caller.install(file, close_on_exec, &mut |number| {
            arg.fd = number;
            Ok(())
        })
    }

    fn fd_to_handle(&self, arg: &mut sys::PrimeHandle, caller: &dyn Caller) -> Result<(), Errno> {
        let file = caller.descriptor(arg.fd)?;
        let mut own = sys::PrimeHandle {
            handle: 0,
            fd: file.number(),
            ..*arg
        };
        let mut handles = self.handles();
        plain_ioctl(&self.node, sys::PRIME_FD_TO_HANDLE, &mut own)?;
        arg.handle = own.handle;
        handles.insert(arg.handle, file_bytes(&file));
        Ok(())
    }
}

/// Bytes of a dma-buf; 0 if unknown.
fn file_bytes(file: &Descriptor) -> u64 {
    let own = format!("/proc/self/fd/{}", file.number());
    std::fs::metadata(own).map_or(0, |found| found.len())
}

/// Whether the client's wait is interrupted.
fn is_interrupted(wake: Wake<'_>) -> bool {
    match wake {
        Wake::Signal => false,
        Wake::Now => true,
        Wake::Readable(socket) => {
            let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
            let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
            polled.is_ok() && !fds[0].revents().is_empty()
        }
    }
}

/// The argument; `EFAULT` if the client could not read all of it.
fn arg_of(request: u32, arg: &[u8]) -> Result<&[u8], Errno> {
    arg.get(..sys::arg_len(request)).ok_or(Errno::FAULT)
}

/// Runs `action` on the argument, which goes back even after an error.
fn update<T: FromBytes + IntoBytes + Immutable>(
    request: u32,
    arg: &mut [u8],
    action: impl FnOnce(&mut T) -> Result<(), Errno>,
) -> Result<i32, Errno> {
    let mut value: T = sys::structure(arg_of(request, arg)?);
    let result = action(&mut value);
    let len = arg.len().min(size_of::<T>());
    arg[..len].copy_from_slice(&value.as_bytes()[..len]);
    result.map(|()| 0)
}
