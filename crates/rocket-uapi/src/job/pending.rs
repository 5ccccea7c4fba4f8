// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the driver has. How it is known that they ran is in
//! `submission.rs`.

use std::mem;
use std::thread;
use std::time::Duration;

use super::builder::Job;
use super::submission::{Submission, SubmitError};
use crate::bo::Bo;
use crate::device::Device;
use crate::error::{Call, Error};
use crate::sync_file::SyncFile;
use crate::units::Deadline;

/// How long dropping a pending job waits for it: several times the driver's
/// limit of 500 ms a job, for those before it in the queue.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Pause before PREP_BO is asked again where it failed. Waiting must not spin.
const POLL: Duration = Duration::from_millis(1);

/// The buffers of a job that has ended, in the order in which the builder got
/// them.
#[derive(Debug, Default)]
pub struct FinishedJob {
    /// Buffers that it read.
    pub reads: Vec<Bo>,
    /// Buffers that it wrote.
    pub writes: Vec<Bo>,
}

/// A job that the driver has.
///
/// It owns its buffers, because the NPU may still touch them. Dropping it waits
/// for its end, up to five seconds, unless the device is gone; if that does not
/// come, the buffers are leaked, because memory under a running DMA must not be
/// reused.
#[must_use = "dropping a pending job waits for it and throws its results away"]
#[derive(Debug)]
pub struct PendingJob {
    /// None once the job has ended and its buffers are given back.
    pub(super) submission: Option<Submission>,
}

impl Device {
    /// Hands jobs to the driver in one call. The driver keeps them in order and,
    /// as long as one of them is unfinished, on one core.
    ///
    /// # Errors
    /// When the driver refuses the call; the jobs, none of which runs, come
    /// back with the error.
    pub fn submit(&self, jobs: Vec<Job>) -> Result<Vec<PendingJob>, SubmitError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let pending = |submission| PendingJob {
            submission: Some(submission),
        };
        let submitted = Submission::start(self, jobs)?;
        Ok(submitted.into_iter().map(pending).collect())
    }
}

impl PendingJob {
    /// The end of the job as a fence that can be passed on: for other jobs to
    /// wait for ([`crate::JobBuilder::after`]), for other devices, for event
    /// loops.
    ///
    /// It tells when the job ends and, if it was taken before that, whether it
    /// was killed. It does not tell whether it ran at all: a job that the driver
    /// dropped has a fence that is signalled.
    ///
    /// This exports the job's page. If the process is killed before the job has
    /// ended and was waited for, kernels of today use freed memory
    /// ([`Bo::export`]).
    ///
    /// # Errors
    /// The backend has no sync_files; no file descriptor left.
    pub fn fence(&self) -> Result<SyncFile, Error> {
        // Only within `wait`, which takes the job with it, there is none.
        let call = Call::ExportSyncFile;
        let none = Error::Unsupported { call };
        self.submission.as_ref().ok_or(none)?.witness.fence()
    }

    /// The parts of a job that has ended.
    pub(super) fn finish(&mut self) -> FinishedJob {
        let finished = self.submission.take().map(Submission::finish);
        let (reads, writes) = finished.unwrap_or_default();
        FinishedJob { reads, writes }
    }
}

impl Drop for PendingJob {
    fn drop(&mut self) {
        let Some(submission) = self.submission.take() else {
            return;
        };
        let until = Deadline::after(DROP_WAIT);
        loop {
            match submission.wait(until) {
                Ok(()) => break drop(submission.finish()),
                // Nobody will ever tell. GEM_CLOSE fails likewise, so memory
                // and addresses stay the kernel's until it has closed the
                // file, and no other buffer gets them.
                Err(Error::DeviceGone { .. }) => break submission.job.device.note_end(),
                Err(error) if until.has_passed() || matches!(error, Error::TimedOut { .. }) => {
                    tracing::error!(
                        %error,
                        "a job was dropped and did not end: its buffers are leaked"
                    );
                    break mem::forget(submission);
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }
}
