// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the driver has, and the proof that they ran.

use std::mem;
use std::time::Duration;

use super::builder::Job;
use super::canary::{Attempt, Pattern};
use super::error::{SubmitError, WaitError};
use crate::backend::{Fence, FenceStatus, RawJob};
use crate::bo::Bo;
use crate::device::Device;
use crate::error::Error;
use crate::units::Deadline;

/// How long dropping a pending job waits for it: several times the driver's
/// limit of 500 ms a job, for those before it in the queue.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// The buffers of a job that has ended, in the order in which the builder got
/// them.
#[derive(Debug)]
pub struct FinishedJob {
    /// Buffers that it read.
    pub reads: Vec<Bo>,
    /// Buffers that it wrote.
    pub writes: Vec<Bo>,
}

/// A job that the driver has.
///
/// It owns its buffers, because the NPU may still touch them. Dropping it waits
/// for its end, up to five seconds; if that does not come, the buffers are
/// leaked, because memory under a running DMA must not be reused.
#[derive(Debug)]
pub struct PendingJob {
    /// None only while its parts are being taken out.
    job: Option<Job>,
    fence: Result<Box<dyn Fence>, Error>,
    /// Right after SUBMIT no fence was pending: it was quick, or was dropped.
    suspicious: bool,
    attempt: Attempt,
    pattern: Pattern,
}

impl PendingJob {
    /// Hands `jobs` to the driver.
    pub(crate) fn submit(device: &Device, mut jobs: Vec<Job>) -> Result<Vec<Self>, SubmitError> {
        if let Err(source) = prepare(device, &mut jobs).and_then(|()| hand_over(device, &jobs)) {
            return Err(SubmitError { source, jobs });
        }
        Ok(jobs
            .into_iter()
            .map(|job| Self::running(job, Attempt::First))
            .collect())
    }

    /// A job just handed over: looks at its fence at once.
    fn running(job: Job, attempt: Attempt) -> Self {
        let fence = match job.writes.first() {
            Some(bo) => job.device.backend().write_fence(bo.handle()),
            // Jobs without a written buffer are not built.
            None => Err(Error::Unsupported {
                call: crate::error::Call::ExportSyncFile,
            }),
        };
        let status = fence.as_ref().map(|fence| fence.status());
        Self {
            suspicious: !matches!(status, Ok(Ok(FenceStatus::Active))),
            job: Some(job),
            fence,
            attempt,
            pattern: Pattern::Of(attempt),
        }
    }

    /// Waits for the job's end and proves that it ran.
    ///
    /// # Errors
    /// When it was killed or dropped, when it has not ended at the deadline,
    /// or when the device does not say. Buffers, or the job, come back.
    pub fn wait(mut self, until: Deadline) -> Result<FinishedJob, WaitError> {
        loop {
            let Some(job) = &self.job else {
                return Ok(FinishedJob {
                    reads: Vec::new(),
                    writes: Vec::new(),
                });
            };
            match self.verdict(job, until) {
                Ok(Verdict::Ran) => return Ok(self.finish()),
                Ok(Verdict::Killed(errno)) => {
                    return Err(WaitError::Killed {
                        errno,
                        job: self.finish(),
                    });
                }
                Ok(Verdict::LooksDropped) if !job.repeatable => {
                    return Err(WaitError::Undecided { job: self.finish() });
                }
                Ok(Verdict::LooksDropped) if self.attempt == Attempt::Second => {
                    return Err(WaitError::Dropped { job: self.finish() });
                }
                Ok(Verdict::LooksDropped) => self = self.run_again()?,
                Err(Error::TimedOut { .. }) => {
                    return Err(WaitError::TimedOut {
                        job: Box::new(self),
                    });
                }
                Err(source) => {
                    return Err(WaitError::Device {
                        source,
                        job: Box::new(self),
                    });
                }
            }
        }
    }

    /// Waits, and looks at fence and canary.
    fn verdict(&self, job: &Job, until: Deadline) -> Result<Verdict, Error> {
        for bo in &job.writes {
            // One fence for all: the first wait is the wait, the others only
            // give the buffers to the CPU.
            bo.prepare(until)?;
        }
        let fence = self.fence.as_ref().map_err(Clone::clone)?;
        match fence.status()? {
            FenceStatus::Failed(errno) => return Ok(Verdict::Killed(errno)),
            // PREP_BO waits for writers; were ours still running, it would not
            // have returned.
            FenceStatus::Active | FenceStatus::Signaled => {}
        }
        let Some(canary) = job.canary.filter(|_| self.suspicious) else {
            return Ok(Verdict::Ran);
        };
        if canary.is_intact(&job.writes, self.pattern)? {
            Ok(Verdict::LooksDropped)
        } else {
            Ok(Verdict::Ran)
        }
    }

    /// Submits the job once more, with the other canary.
    fn run_again(mut self) -> Result<Self, WaitError> {
        let Some(mut job) = self.job.take() else {
            return Ok(self);
        };
        // Whatever fails below, the job has not run again, and either pattern
        // may stand there: a later wait starts this step over.
        self.pattern = Pattern::Either;
        let again = place_canary(&mut job, Attempt::Second)
            .and_then(|()| hand_over(&job.device.clone(), std::slice::from_ref(&job)));
        match again {
            Ok(()) => Ok(Self::running(job, Attempt::Second)),
            Err(source) => {
                self.job = Some(job);
                Err(WaitError::Device {
                    source,
                    job: Box::new(self),
                })
            }
        }
    }

    /// The parts of a job that has ended.
    fn finish(&mut self) -> FinishedJob {
        let Some(job) = self.job.take() else {
            return FinishedJob {
                reads: Vec::new(),
                writes: Vec::new(),
            };
        };
        job.device.note_end();
        FinishedJob {
            reads: job.reads,
            writes: job.writes,
        }
    }
}

/// What became of a job.
enum Verdict {
    Ran,
    Killed(crate::Errno),
    LooksDropped,
}

impl Drop for PendingJob {
    fn drop(&mut self) {
        let Some(job) = self.job.take() else {
            return;
        };
        let until = Deadline::after(DROP_WAIT);
        for bo in &job.writes {
            if let Err(error) = bo.prepare(until) {
                tracing::error!(%error, "a job was dropped and did not end: its buffers are leaked");
                mem::forget(job);
                return;
            }
        }
        job.device.note_end();
    }
}

/// Puts canaries into the outputs, and gives all buffers to the NPU.
fn prepare(device: &Device, jobs: &mut [Job]) -> Result<(), Error> {
    for job in jobs {
        if !job.device.is_same_file(device) {
            return Err(Error::OtherDevice);
        }
        place_canary(job, Attempt::First)?;
    }
    Ok(())
}

fn place_canary(job: &mut Job, attempt: Attempt) -> Result<(), Error> {
    match job.canary {
        Some(canary) => canary.write(&mut job.writes, attempt),
        None => Ok(()),
    }
}

/// SUBMIT.
fn hand_over(device: &Device, jobs: &[Job]) -> Result<(), Error> {
    let handles: Vec<_> = jobs
        .iter()
        .map(|job| (job.read_handles(), job.write_handles()))
        .collect();
    let raw: Vec<_> = jobs
        .iter()
        .zip(&handles)
        .map(|(job, (reads, writes))| RawJob {
            tasks: &job.tasks,
            reads,
            writes,
        })
        .collect();
    for bo in jobs.iter().flat_map(|job| &job.writes) {
        bo.mark_busy();
    }
    device.backend().submit(&raw)
}
