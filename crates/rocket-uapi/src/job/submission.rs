// SPDX-License-Identifier: MIT OR Apache-2.0
//! A submitted job, and how it ended.
//!
//! SUBMIT returns 0 for a job that the driver drops, and PREP_BO returns 0 for a job that
//! it killed. The **witness** proves that a job ran: one more task at its end, which runs
//! only after all others (`witness.rs`). If it did not run, two observations give the
//! reason:
//!
//! * **PREP_BO right after SUBMIT**, without waiting. If the job's page is busy, the driver
//!   accepted the job. If it is idle, the job was quick, or was dropped.
//! * **The clock.** The driver kills a job 500 ms after a core got it, so a job that ended
//!   within 400 ms was not killed ([`crate::Node`] explains the margin).
//!
//! A fence would report a kill too, but userspace gets it only by exporting a buffer
//! object. Current kernels use freed memory if a process is killed after an export
//! (docs/uapi.md).

use std::time::{Duration, Instant};

use thiserror::Error;

use super::builder::Job;
use super::hand_over::hand_over;
use super::witness::Witness;
use crate::bo::Bo;
use crate::device::Device;
use crate::error::Error;
use crate::units::Deadline;

/// A SUBMIT that the driver refused.
#[derive(Debug, Error)]
#[error("none of {} jobs was submitted: {source}", jobs.len())]
pub struct SubmitError {
    /// The error of SUBMIT.
    #[source]
    pub source: Error,
    /// The jobs, unchanged.
    pub jobs: Vec<Job>,
}

/// The buffers of a job that ran, in the order in which the builder got them.
#[derive(Debug, Default)]
pub struct FinishedJob {
    /// Buffers that the job read.
    pub reads: Vec<Bo>,
    /// Buffers that the job wrote.
    pub writes: Vec<Bo>,
    /// How long the job held its core: modelled time on the model. On a kernel device an upper
    /// bound, from SUBMIT or the end of the file's previous job until the end was seen.
    pub core_time: Duration,
}

/// A job that the driver ended before its last task. The NPU does not access its buffers any
/// more.
#[derive(Debug)]
pub struct FailedJob {
    /// The job, which can be submitted again. The contents of its written buffers are
    /// unspecified.
    pub job: Job,
    /// As [`FinishedJob::core_time`].
    pub core_time: Duration,
}

/// A job that SUBMIT handed to the driver.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) job: Job,
    pub(super) witness: Witness,
    /// Whether the driver is known to have accepted the job.
    is_accepted: bool,
    /// A time just before SUBMIT, from which the driver's time limit is counted.
    since: Instant,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobEnd {
    Ran,
    Dropped,
    Killed,
    DroppedOrKilled,
}

impl Submission {
    /// Submits `jobs`, at least one.
    pub(super) fn start(device: &Device, jobs: Vec<Job>) -> Result<Vec<Self>, SubmitError> {
        let witnesses = match witnesses(device, &jobs) {
            Ok(witnesses) => witnesses,
            Err(source) => return Err(SubmitError { source, jobs }),
        };
        let handed: Vec<_> = jobs.into_iter().zip(witnesses).collect();
        let since = Instant::now();
        if let Err(source) = hand_over(device, &handed) {
            let jobs = handed.into_iter().map(|(job, _)| job).collect();
            return Err(SubmitError { source, jobs });
        }
        // Look before anything slower, and in the order in which the jobs end.
        let submitted = handed.into_iter().map(|(job, witness)| Self {
            is_accepted: witness.was_accepted(),
            job,
            witness,
            since,
        });
        Ok(submitted.collect())
    }

    /// Waits for the end, and returns how the job ended. Prepares the written buffers for
    /// the CPU.
    pub(super) fn end(&self, until: Deadline) -> Result<JobEnd, Error> {
        let (job, witness) = (&self.job, &self.witness);
        if job.writes.is_empty() {
            witness.wait(until)?;
        }
        // All written buffers carry the same fence: only the first call waits, the others
        // only prepare their buffers for the CPU.
        job.writes.iter().try_for_each(|bo| bo.prepare(until))?;
        let was_killed = job
            .device
            .file()
            .was_killed(witness.handle().into(), self.since);
        Ok(match (was_killed, self.is_accepted) {
            (Some(true), _) => JobEnd::Killed,
            _ if witness.is_written()? => JobEnd::Ran,
            (_, true) => JobEnd::Killed,
            (Some(false), false) => JobEnd::Dropped,
            (None, false) => JobEnd::DroppedOrKilled,
        })
    }

    pub(super) fn wait(&self, until: Deadline) -> Result<(), Error> {
        self.witness.wait(until)
    }

    /// Returns an ended job, as it was before SUBMIT.
    pub(super) fn into_ended(self) -> FailedJob {
        let Self {
            job,
            witness,
            since,
            ..
        } = self;
        let before = job.device.note_end();
        let modelled = job.device.file().core_time(witness.handle().into());
        let core_time = modelled.unwrap_or_else(|| {
            let since = before.map_or(since, |before| before.max(since));
            since.elapsed()
        });
        witness.give_back();
        FailedJob { job, core_time }
    }

    /// Returns a job that was dropped.
    pub(super) fn into_dropped(self) -> FailedJob {
        FailedJob {
            core_time: Duration::ZERO,
            ..self.into_ended()
        }
    }

    /// Returns the buffers of a job that ran.
    pub(super) fn finish(self) -> FinishedJob {
        let FailedJob { job, core_time } = self.into_ended();
        let (reads, writes) = job.into_bos();
        FinishedJob {
            reads,
            writes,
            core_time,
        }
    }
}

fn witnesses(device: &Device, jobs: &[Job]) -> Result<Vec<Witness>, Error> {
    if jobs.iter().any(|job| !job.device.is_same_file(device)) {
        return Err(Error::OtherDevice);
    }
    jobs.iter()
        .map(|job| Witness::take(device, job.witness))
        .collect()
}
