// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submitted jobs. `submission.rs` determines whether they ran.

use std::mem;
use std::thread;
use std::time::Duration;

use super::builder::Job;
use super::submission::{FinishedJob, Submission, SubmitError};
use crate::device::Device;
use crate::error::{Call, Error};
use crate::sync_file::SyncFile;
use crate::units::Deadline;

/// Longest wait when a pending job is dropped: several times the driver's limit of 500 ms a
/// job, because earlier jobs may be queued.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Pause before a failed PREP_BO is repeated, so that the wait does not spin.
const POLL: Duration = Duration::from_millis(1);

/// A submitted job.
///
/// It owns its buffers, because the NPU may still access them. Dropping it waits up to five
/// seconds for the job's end, unless the device is gone. If the job does not end, the
/// buffers are leaked, because memory under a running DMA must not be reused.
#[must_use = "dropping a pending job waits for it and throws its results away"]
#[derive(Debug)]
pub struct PendingJob {
    /// `None` once the job has ended and its buffers are returned.
    pub(super) submission: Option<Submission>,
}

impl Device {
    /// Submits jobs in one call. The driver keeps them in order and, while one of them is
    /// unfinished, on one core.
    ///
    /// # Errors
    /// The driver refuses the call. No job runs, and the error returns the jobs.
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
    /// A fence for the end of the job, to pass on: to other jobs
    /// ([`crate::JobBuilder::after`]), other devices or event loops.
    ///
    /// The fence signals when the job ends. If you took it before that, it also reports
    /// whether the driver killed the job. It does not report whether the job ran: the fence
    /// of a dropped job is signalled.
    ///
    /// This exports the job's page. If the process is then killed before it has waited for
    /// the job's end, current kernels use freed memory ([`crate::Bo::export`]).
    ///
    /// # Errors
    /// The device has no sync_files; no file descriptor left.
    pub fn fence(&self) -> Result<SyncFile, Error> {
        // The submission is only missing within `wait`, which consumes the job.
        let call = Call::ExportSyncFile;
        let none = Error::Unsupported { call };
        self.submission.as_ref().ok_or(none)?.witness.fence()
    }

    pub(super) fn finish(&mut self) -> FinishedJob {
        let submission = self.submission.take();
        submission.map_or_else(FinishedJob::default, Submission::finish)
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
                // The end of the job will never be known. GEM_CLOSE fails too, so the
                // kernel keeps memory and addresses until it has closed the file, and no
                // other buffer gets them.
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
