// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device whose jobs are recorded: in front of the one that is served.
//!
//! While recording, SUBMIT hands its jobs over one by one and returns when the
//! last of them has ended.

mod jobs;

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use npu_capture::{BoBytes, BoView, JobView, Outcome, Recorder, why_dropped};
use npu_model::driver::{Arena, Caller};
use rocket_uapi::{Deadline, DeviceInfo, FenceStatus, Iova, sys};
use rustix::io::Errno;
use rustix::mm::MapFlags;
use zerocopy::{FromBytes, IntoBytes};

use self::jobs::{Job, Jobs};
use crate::service::{MapOf, OpenFile, Service};

/// How long a job is waited for: the driver kills it after half a second, but
/// it may have to wait for fences and for a core, and a large one takes the
/// model longer.
const WAIT: Duration = Duration::from_secs(60);

/// Bytes of a buffer object's page.
const PAGE: u64 = npu_capture::format::PAGE;

/// Serves another service and records its jobs.
#[derive(Debug)]
pub struct RecordingService {
    inner: Arc<dyn Service>,
    recorder: Recorder,
    files: AtomicU32,
}

impl RecordingService {
    /// Records the jobs of `inner`, a device that says this of itself.
    #[must_use]
    pub fn new(inner: Arc<dyn Service>, recorder: Recorder, info: &DeviceInfo) -> Self {
        recorder.device(info);
        Self {
            inner,
            recorder,
            files: AtomicU32::new(0),
        }
    }
}

impl Service for RecordingService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok(Box::new(RecordedFile {
            inner: self.inner.open()?,
            recorder: self.recorder.clone(),
            file: self.files.fetch_add(1, Ordering::Relaxed),
            bos: Mutex::new(BTreeMap::new()),
        }))
    }

    fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        number: u32,
        arg: u64,
        caller: &dyn Caller,
    ) -> Result<Option<i32>, Errno> {
        self.inner.file_ioctl(file, number, arg, caller)
    }

    fn collect(&self) {
        self.inner.collect();
    }
}

/// A buffer object of a file: `None` for one that came from elsewhere.
type Known = Option<Placed>;

/// A buffer object that the file made.
#[derive(Clone, Copy, Debug)]
struct Placed {
    iova: u32,
    len: u64,
    offset: u64,
}

#[derive(Debug)]
struct RecordedFile {
    inner: Box<dyn OpenFile>,
    recorder: Recorder,
    file: u32,
    bos: Mutex<BTreeMap<u32, Known>>,
}

impl OpenFile for RecordedFile {
    fn ioctl(&self, number: u32, arg: &mut [u8], caller: &dyn Caller) -> Result<i32, Errno> {
        if number == sys::SUBMIT
            && let Some(jobs) = Jobs::read(arg, caller)
        {
            return jobs.0.iter().try_fold(0, |_, job| self.run(job));
        }
        let value = self.inner.ioctl(number, arg, caller)?;
        self.note(number, arg);
        Ok(value)
    }

    fn mmap(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno> {
        self.inner.mmap(offset, len, flags)
    }

    fn write_fence(&self, handle: u32) -> Result<FenceStatus, Errno> {
        self.inner.write_fence(handle)
    }

    fn close(self: Box<Self>, dying: bool) {
        self.inner.close(dying);
    }
}

impl RecordedFile {
    fn bos(&self) -> MutexGuard<'_, BTreeMap<u32, Known>> {
        self.bos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An ioctl was done well, and this is its argument now.
    fn note(&self, number: u32, arg: &[u8]) {
        match number {
            sys::CREATE_BO => {
                if let Ok((bo, _)) = sys::CreateBo::read_from_prefix(arg) {
                    let iova = u32::try_from(bo.dma_address).ok();
                    let placed = iova.map(|iova| Placed {
                        iova,
                        len: u64::from(bo.size).next_multiple_of(PAGE),
                        offset: bo.offset,
                    });
                    self.bos().insert(bo.handle, placed);
                }
            }
            sys::GEM_CLOSE => {
                if let Ok((bo, _)) = sys::GemClose::read_from_prefix(arg) {
                    self.bos().remove(&bo.handle);
                }
            }
            sys::PRIME_FD_TO_HANDLE => {
                if let Ok((bo, _)) = sys::PrimeHandle::read_from_prefix(arg) {
                    // Not over one of its own that comes back.
                    self.bos().entry(bo.handle).or_default();
                }
            }
            _ => (),
        }
    }

    /// Hands one job over, waits for its end, and records it.
    fn run(&self, job: &Job) -> Result<i32, Errno> {
        let known = self.bos().clone();
        let pages: Vec<_> = known.iter().map(|bo| Pages::new(self, bo)).collect();
        let views: Vec<_> = pages.iter().map(Pages::view).collect();
        let view = JobView {
            tasks: &job.tasks,
            reads: &job.reads,
            writes: &job.writes,
            bos: &views,
        };
        let token = self.recorder.job(self.file, &view);
        let exists = |handle| known.contains_key(&handle);
        let dropped = why_dropped(&job.tasks, &job.reads, &job.writes, exists).is_some();
        let waited = job.waited(&token);
        let arena = Arena::new();
        let mut submit = job.submit(&arena, if dropped { &job.writes } else { &waited });
        match self.inner.ioctl(sys::SUBMIT, submit.as_mut_bytes(), &arena) {
            Err(errno) => {
                token.finish(Outcome::Refused(errno), &[]);
                Err(errno)
            }
            Ok(value) => {
                let outcome = if dropped {
                    Outcome::Dropped
                } else {
                    self.outcome(&waited)
                };
                // One that may still run is not looked at.
                let changed = if outcome == Outcome::Unknown {
                    &[][..]
                } else {
                    &views
                };
                token.finish(outcome, changed);
                Ok(value)
            }
        }
    }

    /// Waits for a job that writes `written`.
    fn outcome(&self, written: &[u32]) -> Outcome {
        let Some(&handle) = written.first() else {
            return Outcome::Unknown;
        };
        let mut prep = sys::PrepBo {
            handle,
            reserved: 0,
            timeout_ns: Deadline::after(WAIT).as_nanos(),
        };
        loop {
            let waited = self
                .inner
                .ioctl(sys::PREP_BO, prep.as_mut_bytes(), &Arena::new());
            match waited {
                Ok(_) => break,
                Err(Errno::INTR) => (),
                Err(error) => {
                    tracing::warn!(%error, "how a recorded job ended is not known");
                    return Outcome::Unknown;
                }
            }
        }
        match self.inner.write_fence(handle) {
            Ok(FenceStatus::Signaled) => Outcome::Completed,
            Ok(FenceStatus::Failed(errno)) => Outcome::Killed(errno),
            Ok(FenceStatus::Active) | Err(_) => Outcome::Unknown,
        }
    }
}

/// The pages of an object, as the file that a client would map.
struct Pages<'a> {
    file: &'a RecordedFile,
    handle: u32,
    known: &'a Known,
    /// Opened when first read, and closed with the job: it keeps the object.
    memory: OnceLock<Option<(OwnedFd, u64)>>,
}

impl<'a> Pages<'a> {
    fn new(file: &'a RecordedFile, (&handle, known): (&u32, &'a Known)) -> Self {
        Self {
            file,
            handle,
            known,
            memory: OnceLock::new(),
        }
    }

    fn view(&self) -> BoView<'_> {
        BoView {
            handle: self.handle,
            iova: self.known.map(|placed| Iova(placed.iova)),
            len: self.known.map_or(0, |placed| placed.len),
            bytes: self,
        }
    }

    fn open(&self) -> Option<(OwnedFd, u64)> {
        let placed = self.known.as_ref()?;
        let len = usize::try_from(placed.len).ok()?;
        match self.file.inner.mmap(placed.offset, len, MapFlags::SHARED) {
            Ok(map) => Some((map.file, map.offset)),
            Err(error) => {
                let handle = self.handle;
                tracing::error!(handle, %error, "contents of a buffer object are not recorded");
                None
            }
        }
    }
}

impl BoBytes for Pages<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        if let Some((file, start)) = self.memory.get_or_init(|| self.open()) {
            while done < into.len() {
                let at = start + offset + done as u64;
                match rustix::io::pread(file, &mut into[done..], at) {
                    Ok(0) => break,
                    Ok(len) => done += len,
                    Err(Errno::INTR) => (),
                    Err(error) => {
                        tracing::error!(%error, "contents of a buffer object are not recorded");
                        break;
                    }
                }
            }
        }
        into[done..].fill(0);
    }
}
