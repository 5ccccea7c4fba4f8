// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wait for a job, and its errors.

use thiserror::Error;

use super::pending::PendingJob;
use super::submission::{FinishedJob, JobEnd};
use crate::error::Error;
use crate::units::Deadline;

impl PendingJob {
    /// Waits for the job's end and proves that it ran.
    ///
    /// # Errors
    /// The driver killed or dropped the job; the job has not ended at the deadline; the
    /// device does not answer. The error returns the buffers, or the job.
    pub fn wait(mut self, until: Deadline) -> Result<FinishedJob, WaitError> {
        let Some(submission) = &self.submission else {
            return Ok(FinishedJob::default());
        };
        match submission.end(until) {
            Ok(JobEnd::Ran) => Ok(self.finish()),
            Ok(JobEnd::Dropped) => Err(WaitError::Dropped { job: self.finish() }),
            Ok(JobEnd::Killed) => Err(WaitError::Killed { job: self.finish() }),
            Ok(JobEnd::DroppedOrKilled) => Err(WaitError::DroppedOrKilled { job: self.finish() }),
            Err(Error::TimedOut { .. }) => Err(WaitError::TimedOut {
                job: Box::new(self),
            }),
            Err(source) => Err(WaitError::Device {
                source,
                job: Box::new(self),
            }),
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
    Killed {
        /// The buffers; the contents of written buffers are unspecified.
        job: FinishedJob,
    },
    /// The driver dropped the job before it ran. Proof: its page was not busy after SUBMIT,
    /// the job ended too early for a kill, and its last task did not run.
    #[error(
        "the driver accepted the job and did not run it: it was idle right after SUBMIT, and its \
         last task did not run"
    )]
    Dropped {
        /// The buffers; the contents of written buffers are unspecified.
        job: FinishedJob,
    },
    /// The driver dropped or killed the job; this process looked too late to distinguish
    /// the two.
    #[error("the driver accepted the job and did not run it to its end: it dropped or killed it")]
    DroppedOrKilled {
        /// The buffers; the contents of written buffers are unspecified.
        job: FinishedJob,
    },
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
    /// The buffers, if the job has ended.
    #[must_use]
    pub fn into_finished(self) -> Option<FinishedJob> {
        match self {
            Self::Killed { job } | Self::Dropped { job } | Self::DroppedOrKilled { job } => {
                Some(job)
            }
            Self::TimedOut { .. } | Self::Device { .. } => None,
        }
    }
}
