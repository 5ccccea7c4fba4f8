// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wait for a submitted job, which runs again if the driver ended it early.
//!
//! On silicon a submitted job sometimes never starts, and the driver kills it. The same job is then
//! right the second time. Running it again is safe: its inputs and programs are frozen buffers, it
//! overwrites all of its results, and SUBMIT syncs the caches of what the CPU has written.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rocket_uapi::{Deadline, FailedJob, FinishedJob, Job, PendingJob};

use super::again::Again;
use super::job::DeviceWork;
use crate::plan::error::{Error, JobFailure};
use crate::plan::observe::Activity;

/// Longest wait for a job. A job is planned for a fifth of the 500 ms after which the kernel kills
/// it, and may queue behind jobs of others with the same limit. This timeout catches a kernel that
/// never answers.
const JOB_WAIT: Duration = Duration::from_secs(30);

/// Longest wait for a job on the software model. A slow host takes far longer than an NPU; that is
/// not an error.
const MODEL_JOB_WAIT: Duration = Duration::from_secs(600);

/// What the driver did to a job that it ended early, and the job.
type EndedEarly = (JobFailure, Job);

impl DeviceWork<'_> {
    /// Waits for a job. If the driver killed or dropped it, the job runs a second time: its inputs
    /// are unchanged, and it overwrites all of its results. Recycles the buffers of a job that
    /// failed.
    ///
    /// A job that has not ended within our own time limit, or whose state is unknown, may still
    /// run, so it is not submitted again.
    pub(crate) fn wait(self, pending: PendingJob) -> Result<FinishedJob, Error> {
        let (failure, job) = match self.wait_once(pending, 1)? {
            ControlFlow::Continue(done) => return Ok(done),
            ControlFlow::Break(failed) => failed,
        };
        let given_up = match self.again {
            Again::Never => Some(self.job_error(failure, 1)),
            again if again.is_aborted() => Some(Error::Aborted),
            _ => {
                tracing::debug!(device = self.device, %failure, "a job runs again");
                None
            }
        };
        if let Some(error) = given_up {
            self.discard(vec![job]);
            return Err(error);
        }
        self.engine.totals().jobs_run_again += 1;
        let pending = self.submit(vec![job])?.pop();
        let pending = pending.ok_or_else(|| self.missing())?;
        match self.wait_once(pending, 2)? {
            ControlFlow::Continue(done) => {
                self.engine.totals().jobs_recovered += 1;
                Ok(done)
            }
            ControlFlow::Break((failure, job)) => {
                self.discard(vec![job]);
                Err(self.job_error(failure, 2))
            }
        }
    }

    /// Waits for a job that was submitted `runs` times. Breaks if the driver killed or dropped it.
    fn wait_once(
        self,
        pending: PendingJob,
        runs: u32,
    ) -> Result<ControlFlow<EndedEarly, FinishedJob>, Error> {
        let limit = if self.buffers().is_model {
            MODEL_JOB_WAIT
        } else {
            JOB_WAIT
        };
        let clock = &self.engine.clock;
        let from = Instant::now();
        let waited = pending.wait(Deadline::after(limit));
        clock.ended();
        self.done(Activity::Wait, from);
        let error = match waited {
            Ok(done) => {
                clock.job_ran(done.core_time);
                return Ok(ControlFlow::Continue(done));
            }
            Err(error) => error,
        };
        let failure = JobFailure::of(&error, limit);
        // A job that has not ended is dropped here; the drop waits for it.
        let Some(FailedJob { job, core_time }) = error.into_failed() else {
            clock.job_failed(from.elapsed());
            return Err(self.job_error(failure, runs));
        };
        clock.job_failed(core_time);
        Ok(ControlFlow::Break((failure, job)))
    }

    fn job_error(self, source: JobFailure, runs: u32) -> Error {
        Error::Job {
            device: self.device,
            source,
            runs,
        }
    }

    /// The error for a missing job, which cannot happen with the driver's client.
    pub(crate) fn missing(self) -> Error {
        let what = "a job was lost, which is a bug in npu-matmul";
        self.job_error(JobFailure::Unknown(what.into()), 1)
    }

    /// Waits for a job whose results are not needed any more and recycles its buffers. Its failure
    /// is only logged: an earlier error is the cause.
    pub(crate) fn abandon(self, pending: PendingJob) {
        match self.wait_once(pending, 1) {
            Ok(ControlFlow::Continue(done)) => self.keep(done.reads, done.writes),
            Ok(ControlFlow::Break((error, job))) => {
                tracing::debug!(%error, "one more job failed");
                self.discard(vec![job]);
            }
            Err(error) => tracing::debug!(%error, "one more job failed"),
        }
    }
}
