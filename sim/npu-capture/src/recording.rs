// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recording of a device: its open files, and how its jobs ended.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rocket_uapi::DeviceInfo;

use crate::capture::JobOutcome;
use crate::error::RecordError;
use crate::recorder::{BoView, JobToken, JobView, Recorder};

/// How many recorded jobs ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Jobs that ended well.
    pub completed: u64,
    /// Jobs that the driver killed: it reset their core.
    pub killed: u64,
    /// Jobs that the driver did not take, although SUBMIT said 0.
    pub dropped: u64,
    /// Jobs whose SUBMIT failed, or of which nobody knows how they ended.
    pub others: u64,
}

impl Outcomes {
    fn note(&mut self, outcome: JobOutcome) {
        let counter = match outcome {
            JobOutcome::Completed => &mut self.completed,
            JobOutcome::Killed(_) => &mut self.killed,
            JobOutcome::Dropped => &mut self.dropped,
            JobOutcome::Refused(_) | JobOutcome::Unknown => &mut self.others,
        };
        *counter += 1;
    }
}

/// The recording of a device's jobs. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Recording {
    recorder: Recorder,
    /// Number of the next file.
    files: Arc<AtomicU32>,
    ended: Arc<Mutex<Outcomes>>,
}

impl Recording {
    /// Records, by `recorder`, a device that says this of itself.
    #[must_use]
    pub fn new(recorder: Recorder, info: &DeviceInfo) -> Self {
        recorder.device(info);
        Self {
            recorder,
            files: Arc::default(),
            ended: Arc::default(),
        }
    }

    /// How its jobs ended so far.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for another open file.
    pub(crate) fn next_file(&self) -> u32 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// A job of file `file` begins.
    pub(crate) fn begin(&self, file: u32, job: &JobView<'_>) -> JobToken {
        self.recorder.job(file, job)
    }

    /// It has ended so, and changed what is in these.
    pub(crate) fn end(&self, token: JobToken, outcome: JobOutcome, changed: &[BoView<'_>]) {
        let ended = self.ended.lock();
        ended.unwrap_or_else(PoisonError::into_inner).note(outcome);
        token.finish(outcome, changed);
    }

    /// The driver took a request of which nobody here knows what it does.
    pub(crate) fn miss(&self, request: u32) {
        self.recorder.fail(RecordError::Request { request });
    }
}
