// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device whose jobs are recorded: in front of the one that is served.
//!
//! While recording, SUBMIT hands its jobs over one by one and returns when the
//! last of them has ended.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use npu_capture::{BoBytes, BoView, JobToken, JobView, Outcome, Recorder, why_dropped};
use npu_model::driver::{Arena, Caller};
use rocket_uapi::{Deadline, DeviceInfo, FenceStatus, Iova, sys};
use rustix::io::Errno;
use rustix::mm::MapFlags;
use zerocopy::{FromBytes, IntoBytes};

use crate::jobs::{Job, Jobs};
use crate::service::{MapOf, OpenFile, PAGE, Service, changes_handles, is_call};

/// How long a job is waited for: the driver kills it after half a second, but
/// it may have to wait for fences and for a core, and a large one takes the
/// model longer.
const WAIT: Duration = Duration::from_secs(60);

/// Serves another service and records its jobs.
#[derive(Debug)]
pub struct RecordingService {
    inner: Arc<dyn Service>,
    recorder: Recorder,
    files: AtomicU32,
    ended: Arc<Mutex<Outcomes>>,
}

/// How many recorded jobs ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// They did their work.
    pub completed: u64,
    /// The driver reset their core.
    pub killed: u64,
    /// SUBMIT said 0, and the driver did not take them.
    pub dropped: u64,
    /// SUBMIT failed, or nobody knows how they ended.
    pub others: u64,
}

impl Outcomes {
    fn note(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Completed => &mut self.completed,
            Outcome::Killed(_) => &mut self.killed,
            Outcome::Dropped => &mut self.dropped,
            Outcome::Refused(_) | Outcome::Unknown => &mut self.others,
        };
        *counter += 1;
    }
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
            ended: Arc::default(),
        }
    }

    /// How its jobs ended so far.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service for RecordingService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        Ok(Box::new(RecordedFile {
            inner: self.inner.open()?,
            recorder: self.recorder.clone(),
            file: self.files.fetch_add(1, Ordering::Relaxed),
            ended: Arc::clone(&self.ended),
            bos: Mutex::new(BTreeMap::new()),
        }))
    }

    fn open_sw_sync(&self) -> Result<OwnedFd, Errno> {
        self.inner.open_sw_sync()
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

    fn is_emulated(&self) -> bool {
        self.inner.is_emulated()
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
    ended: Arc<Mutex<Outcomes>>,
    bos: Mutex<BTreeMap<u32, Known>>,
}

impl OpenFile for RecordedFile {
    fn ioctl(&self, number: u32, arg: &mut [u8], caller: &dyn Caller) -> Result<i32, Errno> {
        if is_call(number, sys::SUBMIT)
            && let Ok(jobs) = Jobs::read(arg, caller)
        {
            return jobs.0.iter().try_fold(0, |_, job| self.run(job));
        }
        if !changes_handles(number) {
            return self.inner.ioctl(number, arg, caller);
        }
        // One at a time: a number that one thread gives back is at once another
        // one's, and what is noted last must be what happened last.
        let mut bos = self.bos();
        let value = self.inner.ioctl(number, arg, caller)?;
        note(&mut bos, number, arg);
        Ok(value)
    }

    fn mmap(&self, offset: u64, len: usize, flags: MapFlags) -> Result<MapOf, Errno> {
        self.inner.mmap(offset, len, flags)
    }

    fn contents(&self, offset: u64, len: usize) -> Result<Box<dyn BoBytes>, Errno> {
        self.inner.contents(offset, len)
    }

    fn write_fence(&self, handle: u32) -> Result<FenceStatus, Errno> {
        self.inner.write_fence(handle)
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.inner.bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.inner.is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        self.inner.close(is_ending, died);
    }
}

impl RecordedFile {
    fn bos(&self) -> MutexGuard<'_, BTreeMap<u32, Known>> {
        self.bos.lock().unwrap_or_else(PoisonError::into_inner)
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
                self.end(token, Outcome::Refused(errno), &[]);
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
                self.end(token, outcome, changed);
                Ok(value)
            }
        }
    }

    fn end(&self, token: JobToken, outcome: Outcome, changed: &[BoView<'_>]) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.note(outcome);
        drop(ended);
        token.finish(outcome, changed);
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
        // The others are read too, which takes what the NPU wrote out of the way
        // of the CPU's caches. They have the same fence.
        for &handle in &written[1..] {
            let mut look = sys::PrepBo {
                handle,
                reserved: 0,
                timeout_ns: Deadline::NOW.as_nanos(),
            };
            let _ = self
                .inner
                .ioctl(sys::PREP_BO, look.as_mut_bytes(), &Arena::new());
        }
        match self.inner.write_fence(handle) {
            Ok(FenceStatus::Signaled) => Outcome::Completed,
            Ok(FenceStatus::Failed(errno)) => Outcome::Killed(errno),
            Ok(FenceStatus::Active) | Err(_) => Outcome::Unknown,
        }
    }
}

/// An ioctl was done well, and this is its argument now.
fn note(bos: &mut BTreeMap<u32, Known>, number: u32, arg: &[u8]) {
    if is_call(number, sys::CREATE_BO)
        && let Ok((bo, _)) = sys::CreateBo::read_from_prefix(arg)
    {
        let iova = u32::try_from(bo.dma_address).ok();
        let placed = iova.map(|iova| Placed {
            iova,
            len: u64::from(bo.size).next_multiple_of(PAGE),
            offset: bo.offset,
        });
        bos.insert(bo.handle, placed);
    } else if is_call(number, sys::GEM_CLOSE)
        && let Ok((bo, _)) = sys::GemClose::read_from_prefix(arg)
    {
        bos.remove(&bo.handle);
    } else if is_call(number, sys::PRIME_FD_TO_HANDLE)
        && let Ok((bo, _)) = sys::PrimeHandle::read_from_prefix(arg)
    {
        // Not over one of its own that comes back.
        bos.entry(bo.handle).or_default();
    } else if is_call(number, sys::GEM_OPEN)
        && let Ok((bo, _)) = sys::GemOpen::read_from_prefix(arg)
    {
        bos.entry(bo.handle).or_default();
    }
}

/// The pages of an object.
struct Pages<'a> {
    file: &'a RecordedFile,
    handle: u32,
    known: &'a Known,
    /// Opened when first read, and closed with the job: it keeps the object.
    memory: OnceLock<Option<Box<dyn BoBytes>>>,
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

    fn open(&self) -> Option<Box<dyn BoBytes>> {
        let placed = self.known.as_ref()?;
        let len = usize::try_from(placed.len).ok()?;
        match self.file.inner.contents(placed.offset, len) {
            Ok(contents) => Some(contents),
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
        match self.memory.get_or_init(|| self.open()) {
            Some(contents) => contents.read(offset, into),
            None => into.fill(0),
        }
    }
}
