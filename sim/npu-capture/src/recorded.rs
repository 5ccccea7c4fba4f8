// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the jobs of an open file, for any caller.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rocket_uapi::sys::HandleChange;
use rocket_uapi::{
    Arena, Caller, ClientJob, Deadline, Device, Errno, Error, FileLayer, FileOperations, Iova,
    MapRequest, MappedMemory, PAGE_BYTES, ReadJobsError, SyncFile, ioctl, is_unfinished, prep_bo,
    sys, words, write_fence,
};

use crate::capture::{CapturedObject, JobOutcome, is_dropped};
use crate::error::RecordError;
use crate::recorder::{JobToken, JobView, Recorder};

/// How long to wait for a job. The driver kills it after half a second, but it may
/// first wait for fences and for a core, and a large job takes the model longer.
const WAIT: Duration = Duration::from_secs(60);

/// A job that still runs after this may be killed later. A sync_file shows a kill
/// only if it was exported before the job's end, so one is exported then. It is not
/// exported for every job: a process that is killed must not leave a dma-buf behind
/// (docs/uapi.md).
const SOON: Duration = Duration::from_millis(350);

/// Requests that a recording does not need.
const NOT_RECORDED: [u32; 5] = [
    sys::VERSION,
    sys::GET_CAP,
    sys::PREP_BO,
    sys::FINI_BO,
    sys::PRIME_HANDLE_TO_FD,
];

/// An open file whose jobs are recorded.
///
/// SUBMIT passes its jobs on one by one and returns when the last of them has
/// ended. The order of a program's jobs stays, but no two run at the same time.
pub struct RecordedFile<F> {
    inner: F,
    recorder: Recorder,
    file: u32,
    bos: Mutex<BTreeMap<u32, Known>>,
    /// The end of the last job that lists an object as written, by handle.
    ends: Mutex<BTreeMap<u32, End>>,
}

/// A buffer object of a file; `None` if the NPU cannot see it, as if imported.
type Known = Option<sys::CreateBo>;

/// How a job ended, as far as that was seen.
#[derive(Clone, Copy, Debug)]
struct End {
    was_accepted: bool,
    /// Completed, killed or unknown.
    outcome: JobOutcome,
}

impl<F: fmt::Debug> fmt::Debug for RecordedFile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, file, .. } = self;
        f.debug_struct("RecordedFile")
            .field("inner", inner)
            .field("file", file)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Opens a device of this process once more, to record its jobs.
    ///
    /// # Errors
    /// Those of opening it the first time.
    pub fn open(&self, device: &Device) -> Result<Device, Error> {
        // SAFETY: the recorder passes calls on and makes none that writes or closes a buffer.
        #[allow(unsafe_code)]
        unsafe {
            device.reopen_through(|file| Arc::new(self.of(file)))
        }
    }

    /// Wraps an open file of the device, to record its jobs.
    pub fn of<F: Deref<Target: FileOperations>>(&self, inner: F) -> RecordedFile<F> {
        RecordedFile {
            inner,
            recorder: self.clone(),
            file: self.next_file(),
            bos: Mutex::default(),
            ends: Mutex::default(),
        }
    }
}

impl<F> RecordedFile<F> {
    /// The file that is recorded, without the recorder.
    pub fn into_inner(self) -> F {
        self.inner
    }

    fn bos(&self) -> MutexGuard<'_, BTreeMap<u32, Known>> {
        self.bos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<u32, End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Deref<Target: FileOperations>> RecordedFile<F> {
    /// Submits one job, waits for its end, and records it.
    ///
    /// # Safety
    /// As for SUBMIT of the job.
    unsafe fn run(&self, job: &ClientJob) -> Result<i32, Errno> {
        let known = self.bos().clone();
        let objects = known.iter().map(|(&handle, bo)| CapturedObject {
            file: self.file,
            handle,
            // A known address has 32 bits.
            iova: bo.map(|bo| Iova(bo.dma_address as u32)),
            bytes: bo.map_or(0, |bo| len(&bo) as u64),
        });
        let objects: Vec<_> = objects.collect();
        // Mapped at the first read, and unmapped with the job, since a mapping keeps its
        // object.
        let mapped = RefCell::new(BTreeMap::new());
        let bytes = |handle: u32, offset: u64, into: &mut [u8]| {
            let mut mapped = mapped.borrow_mut();
            let memory = mapped.entry(handle).or_insert_with(|| {
                let bo = known.get(&handle).copied().flatten();
                bo.and_then(|bo| self.map(&bo))
            });
            load(memory.as_deref(), offset, into);
        };
        let view = JobView {
            file: self.file,
            tasks: &job.tasks,
            reads: &job.reads,
            writes: &job.writes,
            objects: &objects,
            bytes: &bytes,
        };
        let token = self.recorder.job(&view);
        let exists = |handle| known.contains_key(&handle);
        let dropped = is_dropped(&job.tasks, &job.reads, &job.writes, exists);
        let waited = if dropped {
            job.writes.clone()
        } else {
            waited(job, &token)
        };
        if job.cannot_be_queued(exists) {
            token.finish(JobOutcome::Dropped, Some(view.bytes));
            return Ok(0);
        }
        let since = Instant::now();
        let arena = Arena::new();
        let submit = job.submit_alone(&waited, &arena);
        let submitted = submit.and_then(|mut submit| {
            // SAFETY: the programs and objects are those of the job. Listing other
            // objects as written only adds a fence. All addresses are `arena`'s.
            unsafe { ioctl(&*self.inner, sys::SUBMIT, &mut submit, &arena) }
        });
        let value = match submitted {
            Ok(value) => value,
            Err(errno) => {
                token.finish(JobOutcome::Refused(errno), None);
                return Err(errno);
            }
        };
        let end = self.end(&waited, since);
        let outcome = if dropped {
            JobOutcome::Dropped
        } else {
            end.map_or(JobOutcome::Unknown, |end| end.outcome)
        };
        // Objects of a job that may still run are not read.
        token.finish(outcome, end.map(|_| view.bytes));
        Ok(value)
    }

    /// Maps an object for reading.
    fn map(&self, bo: &sys::CreateBo) -> Option<Box<dyn MappedMemory>> {
        let request = MapRequest::shared(bo.offset, len(bo)).read_only();
        let mapped = self.inner.mmap(&request).inspect_err(|error| {
            let handle = bo.handle;
            tracing::error!(handle, %error, "cannot record a buffer object's contents");
        });
        mapped.ok()
    }

    /// Waits for a job that lists `written` and was submitted after `since`. `None`
    /// if its end was not seen.
    fn end(&self, written: &[u32], since: Instant) -> Option<End> {
        let &first = written.first()?;
        let end = self
            .wait(first, since)
            .inspect_err(|error| tracing::warn!(%error, "a recorded job's outcome is unknown"))
            .ok();
        // PREP_BO of the other objects too, since they are read: it drops old lines
        // from the CPU's caches. They have the same fence.
        for &handle in &written[1..] {
            let _ = prep_bo(&*self.inner, handle, Deadline::NOW);
        }
        let mut ends = self.ends();
        for handle in written {
            ends.remove(handle);
            ends.extend(end.map(|end| (*handle, end)));
        }
        end
    }

    fn wait(&self, handle: u32, since: Instant) -> Result<End, Errno> {
        let file = &*self.inner;
        let was_accepted = file.was_accepted(handle)?;
        let fence = match prep_bo(file, handle, Deadline::after(SOON)) {
            Ok(()) => None,
            Err(errno) if is_unfinished(errno) => {
                let fence = (!file.info().is_model).then(|| write_fence(file, handle));
                prep_bo(file, handle, Deadline::after(WAIT))?;
                fence.and_then(Result::ok)
            }
            Err(errno) => return Err(errno),
        };
        let outcome = match file.was_killed(handle, since) {
            Some(false) => JobOutcome::Completed,
            // The errno that the driver puts into the fence.
            Some(true) => JobOutcome::Killed(Errno::CANCELED),
            None => match fence.as_ref().map(SyncFile::status) {
                Some(Ok(status)) => status.into(),
                Some(Err(_)) | None => JobOutcome::Unknown,
            },
        };
        Ok(End {
            was_accepted,
            outcome,
        })
    }
}

/// The objects by which to wait for a job, which are listed as written. The driver
/// attaches the job's fence only to those.
fn waited(job: &ClientJob, token: &JobToken) -> Vec<u32> {
    if !job.writes.is_empty() {
        job.writes.clone()
    } else if !job.reads.is_empty() {
        job.reads.clone()
    } else {
        // An object that contains its programs.
        token.any_handle().into_iter().collect()
    }
}

/// Bytes of an object, whole pages.
fn len(bo: &sys::CreateBo) -> usize {
    (bo.size as usize).next_multiple_of(PAGE_BYTES)
}

/// Fills `into` with the bytes of an object from `offset` on, and zeroes beyond its memory.
fn load(memory: Option<&dyn MappedMemory>, offset: u64, into: &mut [u8]) {
    let len = memory.map_or(0, MappedMemory::len);
    let start = usize::try_from(offset).map_or(len, |offset| offset.min(len));
    let (copied, beyond) = into.split_at_mut(into.len().min(len - start));
    if let Some(memory) = memory {
        // The program, other processes and the NPU may change the bytes meanwhile.
        // Loading words is allowed then, and works for read-only pages too.
        words::load(memory.words(), start, copied);
    }
    beyond.fill(0);
}

// SAFETY: handles, addresses, memory and waits are those of the inner file, which
// keeps the promises. A SUBMIT that returns after its jobs' end breaks none.
unsafe impl<F> FileLayer for RecordedFile<F>
where
    F: Deref<Target: FileOperations> + fmt::Debug + Send + Sync,
{
    type Below = F::Target;

    fn below(&self) -> &F::Target {
        &self.inner
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        let is = |&known: &u32| sys::is_call(request, known);
        let mut is_known = NOT_RECORDED.iter().any(is);
        if is(&sys::SUBMIT) {
            match ClientJob::read_all(arg, caller) {
                // SAFETY: what the caller promises for all of them.
                Ok(jobs) => return jobs.iter().try_fold(0, |_, job| unsafe { self.run(job) }),
                // The driver refuses these too, with its errno.
                Err(ReadJobsError::BadArgument(_) | ReadJobsError::Fault) => is_known = true,
                Err(ReadJobsError::TooMany) => (),
            }
        }
        if !HandleChange::can_come_of(request) {
            // SAFETY: what the caller promises.
            let value = unsafe { self.inner.ioctl(request, arg, caller) }?;
            if !is_known {
                // The effect of this ioctl is not known here.
                self.recorder.fail(RecordError::Request { request });
            }
            return Ok(value);
        }
        // Lock the table first. A handle that one thread closes may go to another
        // at once, and the table must change in the driver's order.
        let mut bos = self.bos();
        // SAFETY: what the caller promises.
        let value = unsafe { self.inner.ioctl(request, arg, caller) }?;
        match HandleChange::of(request, arg) {
            Some(HandleChange::Created(bo)) => {
                let can_be_seen = u32::try_from(bo.dma_address).is_ok();
                bos.insert(bo.handle, can_be_seen.then_some(bo));
            }
            Some(HandleChange::Closed(handle)) => {
                bos.remove(&handle);
                self.ends().remove(&handle);
            }
            // An import that returns an object of this file does not replace it.
            Some(HandleChange::Imported(handle)) => {
                bos.entry(handle).or_default();
            }
            None => (),
        }
        Ok(value)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        Ok(Arc::new(self.recorder.of(self.inner.reopen()?)))
    }

    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        // The job has ended: use what was seen of its end.
        let ends = self.ends();
        Ok(ends.get(&handle).is_some_and(|end| end.was_accepted))
    }

    fn was_killed(&self, handle: u32, _: Instant) -> Option<bool> {
        match self.ends().get(&handle)?.outcome {
            JobOutcome::Unknown => None,
            outcome => Some(matches!(outcome, JobOutcome::Killed(_))),
        }
    }
}
