// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording within a process: a backend in front of another.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rocket_uapi::{
    Backend, BoMemory, ByteLen, Deadline, DeviceInfo, Errno, Error, Handle, Iova, RawBo, RawJob,
    SharedMemory, Sharing, words,
};

use crate::capture::Outcome;
use crate::delta::BoBytes;
use crate::drops::why_dropped;
use crate::recorder::{BoView, JobView, Recorder};

/// How long a job is waited for: the driver kills it after half a second, but
/// it may have to wait for fences and for a core.
const WAIT: Duration = Duration::from_secs(10);

/// One open file of a device whose jobs are recorded.
///
/// Jobs run one at a time, each to its end, before SUBMIT returns: the order
/// of a program's jobs stays, but nothing runs beside anything else.
pub struct RecordingBackend {
    inner: Arc<dyn Backend>,
    recorder: Recorder,
    file: u32,
    /// Number of the next file.
    files: Arc<AtomicU32>,
    bos: Mutex<BTreeMap<u32, Known>>,
    /// How the last job that lists an object as written ended.
    ends: Mutex<BTreeMap<Handle, End>>,
}

/// What was seen of a job's end.
#[derive(Clone, Copy, Debug)]
struct End {
    was_accepted: bool,
    was_killed: Option<bool>,
}

/// A buffer object of the file.
#[derive(Clone, Debug)]
struct Known {
    iova: Option<Iova>,
    /// None for an imported one.
    memory: Option<Arc<dyn BoMemory>>,
}

impl RecordingBackend {
    /// Records the jobs of `inner`, and of files that are opened from it.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, recorder: Recorder) -> Self {
        recorder.device(&inner.info());
        Self {
            inner,
            recorder,
            file: 0,
            files: Arc::new(AtomicU32::new(1)),
            bos: Mutex::new(BTreeMap::new()),
            ends: Mutex::new(BTreeMap::new()),
        }
    }

    fn bos(&self) -> MutexGuard<'_, BTreeMap<u32, Known>> {
        self.bos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<Handle, End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one job to its end, and records it.
    ///
    /// # Safety
    /// As for [`Backend::submit`].
    unsafe fn run(&self, job: &RawJob<'_>) -> Result<(), Error> {
        let known = self.bos().clone();
        let pages: Vec<_> = known.iter().map(|bo| Pages::new(self, bo)).collect();
        let views: Vec<_> = pages.iter().map(Pages::view).collect();
        let numbers = |list: &[Handle]| -> Vec<u32> { list.iter().map(|bo| bo.get()).collect() };
        let (reads, writes) = (numbers(job.reads), numbers(job.writes));
        let token = self.recorder.job(
            self.file,
            &JobView {
                tasks: job.tasks,
                reads: &reads,
                writes: &writes,
                bos: &views,
            },
        );
        give_back(&pages);
        let exists = |handle| known.contains_key(&handle);
        let dropped = why_dropped(job.tasks, &reads, &writes, exists).is_some();
        let waited = waited(job, &known);
        let writes = if job.writes.is_empty() {
            waited.as_slice()
        } else {
            job.writes
        };
        let moved = RawJob {
            reads: if job.writes.is_empty() {
                &[]
            } else {
                job.reads
            },
            writes,
            ..*job
        };
        let handed_over = if dropped { job } else { &moved };
        let since = Instant::now();
        // SAFETY: what the caller promises: the programs and objects are those
        // of the job, and which of them it lists as written adds a fence only.
        if let Err(error) = unsafe { self.inner.submit(&[*handed_over]) } {
            let errno = match error {
                Error::Refused { errno, .. } => errno,
                _ => Errno::NODEV,
            };
            token.finish(Outcome::Refused(errno), &views);
            give_back(&pages);
            return Err(error);
        }
        let end = self.end(writes, since);
        let outcome = match end.and_then(|end| end.was_killed) {
            _ if dropped => Outcome::Dropped,
            // The errno that the driver puts into the fence.
            Some(true) => Outcome::Killed(Errno::CANCELED),
            Some(false) => Outcome::Completed,
            None => Outcome::Unknown,
        };
        // Without an end it may still run.
        let changed: &[_] = if end.is_some() { &views } else { &[] };
        token.finish(outcome, changed);
        give_back(&pages);
        Ok(())
    }

    /// Waits for a job that lists `written`, handed over after `since`. `None`
    /// if its end was not seen.
    fn end(&self, written: &[Handle], since: Instant) -> Option<End> {
        let &first = written.first()?;
        let accepted = self.inner.was_accepted(first);
        let waited = self.inner.prep_bo(first, Deadline::after(WAIT));
        let end = match accepted.and_then(|accepted| waited.map(|()| accepted)) {
            Ok(was_accepted) => Some(End {
                was_accepted,
                was_killed: self.inner.was_killed(first, since),
            }),
            Err(error) => {
                tracing::warn!(%error, "how a recorded job ended is not known");
                None
            }
        };
        let mut ends = self.ends();
        for handle in written {
            ends.remove(handle);
            ends.extend(end.map(|end| (*handle, end)));
        }
        end
    }
}

/// What can be waited for: the driver attaches a job's fence to what it lists
/// as written, so that of a job without such a list one could not see the end.
fn waited(job: &RawJob<'_>, known: &BTreeMap<u32, Known>) -> Vec<Handle> {
    if !job.writes.is_empty() {
        return job.writes.to_vec();
    }
    if !job.reads.is_empty() {
        return job.reads.to_vec();
    }
    let Some(task) = job.tasks.first() else {
        return Vec::new();
    };
    let holds = |known: &Known| match (&known.iova, &known.memory) {
        (Some(iova), Some(memory)) => {
            let offset = task.regcmd.0.checked_sub(iova.0);
            offset.is_some_and(|offset| (offset as usize) < memory.len())
        }
        _ => false,
    };
    let holder = known.iter().find(|(_, known)| holds(known));
    let handle = holder.and_then(|(&handle, _)| Handle::new(handle));
    handle.into_iter().collect()
}

/// The pages of an object, taken from the device when they are first read.
struct Pages<'a> {
    backend: &'a RecordingBackend,
    handle: u32,
    known: &'a Known,
    prepared: Cell<bool>,
}

impl<'a> Pages<'a> {
    fn new(backend: &'a RecordingBackend, (&handle, known): (&u32, &'a Known)) -> Self {
        Self {
            backend,
            handle,
            known,
            prepared: Cell::new(false),
        }
    }

    fn view(&self) -> BoView<'_> {
        let memory = self.known.memory.as_ref();
        BoView {
            handle: self.handle,
            iova: self.known.iova,
            len: memory.map_or(0, |memory| memory.len() as u64),
            bytes: self,
        }
    }
}

/// Gives what was read back to the device, as the program had left it.
fn give_back(pages: &[Pages<'_>]) {
    for page in pages.iter().filter(|page| page.prepared.take()) {
        let Some(handle) = Handle::new(page.handle) else {
            continue;
        };
        if let Err(error) = page.backend.inner.fini_bo(handle) {
            tracing::warn!(%handle, %error, "FINI_BO of a recorded buffer object failed");
        }
    }
}

impl BoBytes for Pages<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) {
        if let Some(handle) = Handle::new(self.handle)
            && !self.prepared.replace(true)
            && let Err(error) = self.backend.inner.prep_bo(handle, Deadline::after(WAIT))
        {
            tracing::warn!(%handle, %error, "a buffer object is recorded while a job may write it");
        }
        let Some(memory) = &self.known.memory else {
            into.fill(0);
            return;
        };
        let len = memory.len().saturating_sub(offset as usize).min(into.len());
        into[len..].fill(0);
        // SAFETY: the pages of the object, aligned for words, readable and
        // initialised as long as `memory` lives. This runs within `submit`,
        // whose caller promises that of what the job writes no reference exists
        // and that this program changes what it reads by atomics at most; other
        // processes and the NPU may change them, as atomics allow.
        let words: &[AtomicU64] = unsafe {
            slice::from_raw_parts(
                memory.as_ptr().cast(),
                memory.len() / size_of::<AtomicU64>(),
            )
        };
        words::load(words, offset as usize, &mut into[..len]);
    }
}

impl fmt::Debug for RecordingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, file, .. } = self;
        f.debug_struct("RecordingBackend")
            .field("inner", inner)
            .field("file", file)
            .finish_non_exhaustive()
    }
}

/// The memory of an object, of which the recorder has another reference.
#[derive(Debug)]
struct Recorded(Arc<dyn BoMemory>);

// SAFETY: it is the inner memory, by another name; the recorder only reads it.
unsafe impl BoMemory for Recorded {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: handles, addresses, memory and waits are those of the inner
// backend, which keeps the promises. That a job has ended before `submit`
// returns breaks none.
unsafe impl Backend for RecordingBackend {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        let bo = self.inner.create_bo(len)?;
        let memory: Arc<dyn BoMemory> = Arc::from(bo.memory);
        let known = Known {
            iova: Some(bo.iova),
            memory: Some(Arc::clone(&memory)),
        };
        self.bos().insert(bo.handle.get(), known);
        Ok(RawBo {
            memory: Box::new(Recorded(memory)),
            ..bo
        })
    }

    fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        // Unmaps it, before its handle is closed.
        self.bos().remove(&handle.get());
        self.ends().remove(&handle);
        self.inner.close_bo(handle)
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        self.inner.prep_bo(handle, until)
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        self.inner.fini_bo(handle)
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        for job in jobs {
            // SAFETY: what the caller promises for all of them.
            unsafe { self.run(job) }?;
        }
        Ok(())
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        self.inner.export_bo(handle)
    }

    fn was_accepted(&self, handle: Handle) -> Result<bool, Error> {
        // The job is over: what was seen of it counts.
        Ok(self.ends().get(&handle).is_some_and(|end| end.was_accepted))
    }

    fn was_killed(&self, handle: Handle, _: Instant) -> Option<bool> {
        self.ends().get(&handle)?.was_killed
    }

    fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let handle = self.inner.import_bo(dma_buf)?;
        self.bos().entry(handle.get()).or_insert(Known {
            iova: None,
            memory: None,
        });
        Ok(handle)
    }

    fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn SharedMemory>, Error> {
        self.inner.map_dma_buf(dma_buf)
    }

    fn sharing(&self) -> Option<Arc<dyn Sharing>> {
        self.inner.sharing()
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Self {
            inner: self.inner.reopen()?,
            recorder: self.recorder.clone(),
            file: self.files.fetch_add(1, Ordering::Relaxed),
            files: Arc::clone(&self.files),
            bos: Mutex::new(BTreeMap::new()),
            ends: Mutex::new(BTreeMap::new()),
        }))
    }

    fn settle(&self) -> Duration {
        self.inner.settle()
    }
}
