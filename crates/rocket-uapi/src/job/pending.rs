// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submitted jobs, and the wait for their ends. `submission.rs` determines whether they ran.

use std::mem;
use std::thread;
use std::time::Duration;

use thiserror::Error;

use super::builder::Job;
use super::submission::{FailedJob, FinishedJob, JobEnd, Submission, SubmitError};
use crate::device::Device;
use crate::error::Error;
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
    submission: Option<Submission>,
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
        let none = Error::Unsupported("EXPORT_SYNC_FILE");
        self.submission.as_ref().ok_or(none)?.witness.fence()
    }

    /// Whether the job has ended, or its state cannot be read: [`Self::wait`] then returns at once.
    /// PREP_BO without waiting.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let end = self.submission.as_ref().map(|job| job.wait(Deadline::NOW));
        !matches!(end, Some(Err(Error::TimedOut(_))))
    }

    /// Waits for the job's end and proves that it ran.
    ///
    /// # Errors
    /// The driver killed or dropped the job; the job has not ended at the deadline; the
    /// device does not answer. The error returns the job.
    pub fn wait(mut self, until: Deadline) -> Result<FinishedJob, WaitError> {
        let Some(submission) = &self.submission else {
            return Ok(FinishedJob::default());
        };
        let end = match submission.end(until) {
            Ok(end) => end,
            Err(source) => {
                let job = Box::new(self);
                return Err(match source {
                    Error::TimedOut(_) => WaitError::TimedOut { job },
                    _ => WaitError::Device { source, job },
                });
            }
        };
        let Some(submission) = self.submission.take() else {
            return Ok(FinishedJob::default());
        };
        Err(match end {
            JobEnd::Ran => return Ok(submission.finish()),
            JobEnd::Dropped => WaitError::Dropped(Box::new(submission.into_dropped())),
            JobEnd::Killed => WaitError::Killed(Box::new(submission.into_ended())),
            JobEnd::DroppedOrKilled => {
                WaitError::DroppedOrKilled(Box::new(submission.into_ended()))
            }
        })
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
                Err(Error::DeviceGone(_)) => {
                    submission.job.device.note_end();
                    break;
                }
                Err(error) if until.has_passed() || matches!(error, Error::TimedOut(_)) => {
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

/// Why a job has no usable result, or none yet.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The job has not ended at the deadline. Wait again.
    #[error("the job did not end before the deadline; wait again, or drop it to give up")]
    TimedOut {
        /// The job, which continues.
        job: Box<PendingJob>,
    },
    /// The driver accepted the job and ended it early. Proof: the job's page was busy after
    /// SUBMIT, and its last task did not run. Kernels up to 7.0 do not distinguish two
    /// causes. If power or IOMMU fail, their fence never signals, and the same timeout as
    /// for a hang ends the job.
    #[error(
        "the driver ended the job before its last task: either the job hung or ran for longer \
         than the driver's 500 ms, or the driver could not power the NPU or attach its IOMMU; \
         the kernel log shows which (`dmesg | grep -i -e rocket -e iommu`)"
    )]
    Killed(Box<FailedJob>),
    /// The driver dropped the job before it ran. Proof: its page was not busy after SUBMIT,
    /// the job ended too early for a kill, and its last task did not run.
    #[error(
        "the driver accepted the job and did not run it: it was idle right after SUBMIT, and its \
         last task did not run"
    )]
    Dropped(Box<FailedJob>),
    /// The driver dropped or killed the job; this process looked too late to distinguish
    /// the two.
    #[error("the driver accepted the job and did not run it to its end: it dropped or killed it")]
    DroppedOrKilled(Box<FailedJob>),
    /// The device did not report the state of the job. The job may still run; wait again.
    #[error("cannot read the state of the job: {source}")]
    Device {
        /// Why the state is unknown.
        #[source]
        source: Error,
        /// The job, which may still run.
        job: Box<PendingJob>,
    },
}

impl WaitError {
    /// The job, if it has ended.
    #[must_use]
    pub fn into_failed(self) -> Option<FailedJob> {
        match self {
            Self::Killed(failed) | Self::Dropped(failed) | Self::DroppedOrKilled(failed) => {
                Some(*failed)
            }
            Self::TimedOut { .. } | Self::Device { .. } => None,
        }
    }
}
