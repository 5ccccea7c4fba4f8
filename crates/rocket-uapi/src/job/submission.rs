// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job in the driver's hands, and what became of it.
//!
//! SUBMIT returns 0 for a job that the driver drops, and PREP_BO returns 0 for
//! one that it killed. The **witness** proves that a job ran: one more task at
//! its end, which runs only after all others (`witness.rs`). Two observations
//! name the reason where it did not run:
//!
//! * **PREP_BO right after SUBMIT**, without waiting. If the job's page is busy,
//!   the driver took the job. If it is idle, the job was quick, or there never
//!   was one.
//! * **The clock.** The driver does not kill before 500 ms, so a job that ended
//!   earlier was not killed.
//!
//! A fence would tell of a kill too, but userspace gets it by an export of a
//! buffer object only, and kernels of today use freed memory when a process is
//! killed that ever exported one (docs/uapi.md).

use std::time::Instant;

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
    /// What the driver said to SUBMIT.
    #[source]
    pub source: Error,
    /// The jobs, as they were.
    pub jobs: Vec<Job>,
}

/// A job that the driver got.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) job: Job,
    pub(super) witness: Witness,
    /// Whether the driver is known to have taken it.
    is_accepted: bool,
    /// A time just before SUBMIT, from which the driver's limit is counted.
    since: Instant,
}

/// What became of a job that has ended, or never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// All of it ran.
    Ran,
    /// The driver never took it.
    Dropped,
    /// The driver killed it.
    Killed,
    /// It did not run to its end: one of the two.
    DroppedOrKilled,
}

impl Submission {
    /// Hands `jobs`, at least one, to the driver.
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
        // Asked before anything slower, and in the order in which they end.
        let submitted = handed.into_iter().map(|(job, witness)| Self {
            is_accepted: witness.was_accepted(),
            job,
            witness,
            since,
        });
        Ok(submitted.collect())
    }

    /// Waits for the end, and tells what it was. Gives what the job wrote to the
    /// CPU.
    pub(super) fn end(&self, until: Deadline) -> Result<JobEnd, Error> {
        let (job, witness) = (&self.job, &self.witness);
        if job.writes.is_empty() {
            witness.wait(until)?;
        }
        // One fence for all: the first wait is the wait, the others only give
        // the buffers to the CPU.
        job.writes.iter().try_for_each(|bo| bo.prepare(until))?;
        let was_killed = job.device.file().was_killed(witness.handle(), self.since);
        Ok(match (was_killed, self.is_accepted) {
            (Some(true), _) => JobEnd::Killed,
            _ if witness.is_written()? => JobEnd::Ran,
            (_, true) => JobEnd::Killed,
            (Some(false), false) => JobEnd::Dropped,
            (None, false) => JobEnd::DroppedOrKilled,
        })
    }

    /// Waits for the end, whatever it is.
    pub(super) fn wait(&self, until: Deadline) -> Result<(), Error> {
        self.witness.wait(until)
    }

    /// The buffers of a job that has ended: those it read, and those it wrote.
    pub(super) fn finish(self) -> (Vec<Bo>, Vec<Bo>) {
        self.job.device.note_end();
        self.witness.give_back();
        self.job.into_bos()
    }
}

/// A page for each job.
fn witnesses(device: &Device, jobs: &[Job]) -> Result<Vec<Witness>, Error> {
    if jobs.iter().any(|job| !job.device.is_same_file(device)) {
        return Err(Error::OtherDevice);
    }
    jobs.iter().map(|_| Witness::take(device)).collect()
}
