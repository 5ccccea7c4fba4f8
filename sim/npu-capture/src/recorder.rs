// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records jobs into a file when they are submitted.

mod input;
mod state;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rocket_uapi::DeviceInfo;

use self::state::State;
use crate::capture::JobOutcome;
use crate::error::RecordError;
use crate::format::{FLAG_ZERO_DATA, SectionKind};
use crate::sections;
use crate::writer::CaptureWriter;

pub use input::{JobView, ReadObject, RecorderOptions};
pub use state::Outcomes;

/// Records jobs into a file. Clones record into the same file.
///
/// No call here fails while a program runs: the first error ends the recording, and
/// [`Recorder::finish`] returns it.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Inner>);

/// The size of a finished recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Number of jobs.
    pub jobs: u32,
    /// Length of the file, bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Signalled when a job ends.
    ended: Condvar,
    begun: Instant,
    /// Number of the next open file.
    files: AtomicU32,
    options: RecorderOptions,
}

impl Recorder {
    /// Creates the file at `path`, or replaces it, for jobs of the device with this `info`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(
        path: &Path,
        info: &DeviceInfo,
        options: RecorderOptions,
    ) -> Result<Self, RecordError> {
        let flags = if options.zero_data { FLAG_ZERO_DATA } else { 0 };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ns = since_1970.map_or(0, |time| nanoseconds(time.as_nanos()));
        let out = BufWriter::new(File::create(path)?);
        let mut writer = CaptureWriter::new(out, flags, unix_ns)?;
        if !options.notes.is_empty() {
            let payload = sections::notes::encode(&options.notes);
            writer.section(SectionKind::NOTES, &payload)?;
        }
        writer.section(SectionKind::DEVICE, &sections::device::encode(info))?;
        // A program that is interrupted leaves a capture without jobs, not an empty file.
        writer.flush()?;
        Ok(Self(Arc::new(Inner {
            state: Mutex::new(State {
                writer: Some(writer),
                ..State::default()
            }),
            ended: Condvar::new(),
            begun: Instant::now(),
            files: AtomicU32::new(0),
            options,
        })))
    }

    /// Records a job and the memory before it runs. Waits until the job before it, of any
    /// file, has ended.
    pub fn job(&self, job: &JobView<'_>) -> JobToken {
        let mut state = self.0.lock();
        while state.running {
            let woken = self.0.ended.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.running = true;
        let started_ns = self.0.now();
        let recorded = state.begin(job, started_ns, &self.0.options);
        let objects = state.keep_going(recorded);
        JobToken {
            recorder: self.clone(),
            objects: Some(objects),
        }
    }

    /// Numbers of the jobs so far, by outcome.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        self.0.lock().outcomes
    }

    pub(crate) fn next_file(&self) -> u32 {
        self.0.files.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends the recording with an error, which [`Recorder::finish`] returns.
    pub(crate) fn fail(&self, error: RecordError) {
        self.0.lock().keep_going::<()>(Err(error));
    }

    /// Writes the end of the file. Jobs that still run have no outcome in it.
    ///
    /// # Errors
    /// The first error since recording began.
    pub fn finish(&self) -> Result<RecordingSummary, RecordError> {
        let mut state = self.0.lock();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let mut summary = RecordingSummary {
            jobs: state.jobs,
            bytes: 0,
        };
        if let Some(writer) = state.writer.take() {
            summary.bytes = writer.finish()?.get_ref().metadata()?.len();
        }
        Ok(summary)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        nanoseconds(self.begun.elapsed().as_nanos())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = state.writer.take()
            && let Err(error) = writer.finish()
        {
            tracing::error!(%error, "the capture has no end");
        }
    }
}

/// A running job. Dropping it records that its outcome is unknown.
#[must_use = "dropping it records that the outcome of the job is unknown"]
#[derive(Debug)]
pub struct JobToken {
    recorder: Recorder,
    /// The objects whose contents are recorded; `None` once its end is recorded.
    objects: Option<Vec<u32>>,
}

impl JobToken {
    /// The handle of one of the objects whose contents are recorded.
    pub(crate) fn any_handle(&self) -> Option<u32> {
        let &object = self.objects.as_ref()?.first()?;
        Some(
            self.recorder.0.lock().objects[object as usize]
                .captured
                .handle,
        )
    }

    /// Records the end of the job, and what it changed if `bytes` can read its objects.
    pub fn finish(mut self, outcome: JobOutcome, bytes: Option<ReadObject<'_>>) {
        self.end(outcome, bytes);
    }

    fn end(&mut self, outcome: JobOutcome, bytes: Option<ReadObject<'_>>) {
        let Some(objects) = self.objects.take() else {
            return;
        };
        let ended_ns = self.recorder.0.now();
        let mut state = self.recorder.0.lock();
        state.outcomes.note(outcome);
        let recorded = state.end(&objects, outcome, ended_ns, bytes);
        state.keep_going(recorded);
        state.running = false;
        drop(state);
        self.recorder.0.ended.notify_one();
    }
}

impl Drop for JobToken {
    fn drop(&mut self) {
        self.end(JobOutcome::Unknown, None);
    }
}

/// Nanoseconds in 64 bits: some centuries.
fn nanoseconds(time: u128) -> u64 {
    u64::try_from(time).unwrap_or(u64::MAX)
}
