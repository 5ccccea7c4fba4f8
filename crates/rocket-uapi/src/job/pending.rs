// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the driver has, and the proof that they ran. The reasoning is in
//! `canary.rs`.

use std::mem;
use std::thread;
use std::time::Duration;

use super::builder::Job;
use super::canary::{Atom, Attempt};
use super::error::{Doubt, SubmitError, WaitError};
use super::hand_over::hand_over;
use crate::Errno;
use crate::backend::{Fence, FenceStatus};
use crate::bo::Bo;
use crate::device::Device;
use crate::error::{Call, Error};
use crate::sync_file::SyncFile;
use crate::units::Deadline;

/// How long dropping a pending job waits for it: several times the driver's
/// limit of 500 ms a job, for those before it in the queue.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Pause between looks at a job where PREP_BO itself does not wait: it failed,
/// or it says that the BO is idle while the fence says otherwise (no driver
/// known does that). Waiting must not spin.
const FENCE_POLL: Duration = Duration::from_millis(1);

/// The buffers of a job that has ended, in the order in which the builder got
/// them.
#[derive(Debug, Default)]
pub struct FinishedJob {
    /// Buffers that it read, then those that it had as scratch.
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
    job: Option<Job>,
    evidence: Evidence,
    attempt: Attempt,
    /// What the first canary replaced.
    replaced: Option<Atom>,
}

/// What was seen of a job right after SUBMIT.
#[derive(Debug)]
enum Evidence {
    /// Its fence, not yet signalled or failed, or known to be new: the driver
    /// took the job.
    Accepted(Box<dyn Fence>),
    /// A signalled fence: that of a quick job, or of none.
    Silent(Box<dyn Fence>),
    /// There is no fence to look at.
    Lost(Error),
}

/// What became of a job, as far as can be told.
enum Verdict {
    Ran,
    Running,
    LooksDropped,
    Dropped,
    Killed(Errno),
    Undecided(Doubt),
}

impl PendingJob {
    /// Hands `jobs` to the driver.
    pub(crate) fn submit(device: &Device, mut jobs: Vec<Job>) -> Result<Vec<Self>, SubmitError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut replaced = Vec::with_capacity(jobs.len());
        let submitted =
            plant(device, &mut jobs, &mut replaced).and_then(|()| hand_over(device, &jobs));
        if let Err(source) = submitted {
            for (job, atom) in jobs.iter_mut().zip(replaced) {
                job.canary.restore(atom, &mut job.writes);
            }
            return Err(SubmitError { source, jobs });
        }
        // All fences before anything slower: one that is not signalled yet
        // proves that the driver took its job.
        let evidence: Vec<_> = jobs.iter().map(Evidence::collect).collect();
        let pending = jobs.into_iter().zip(replaced).zip(evidence);
        Ok(pending
            .map(|((job, replaced), evidence)| Self {
                attempt: job.canary.first,
                job: Some(job),
                evidence,
                replaced,
            })
            .collect())
    }

    /// Waits for the job's end and proves that it ran.
    ///
    /// A job that looks dropped is run again, if that is harmless.
    ///
    /// # Errors
    /// When it was killed or dropped, when it has not ended at the deadline,
    /// or when the device does not say. Buffers, or the job, come back.
    pub fn wait(mut self, until: Deadline) -> Result<FinishedJob, WaitError> {
        loop {
            match self.verdict(until) {
                Ok(Verdict::Ran) => return Ok(self.finish()),
                Ok(Verdict::Running) if until.has_passed() => return Err(self.timed_out()),
                Ok(Verdict::Running) => thread::sleep(FENCE_POLL),
                Ok(Verdict::LooksDropped) => {
                    if let Err(source) = self.run_again() {
                        return Err(self.unknown(source));
                    }
                }
                Ok(Verdict::Dropped) => {
                    self.remove_canary();
                    return Err(WaitError::Dropped { job: self.finish() });
                }
                Ok(Verdict::Killed(errno)) => {
                    self.remove_canary();
                    let job = self.finish();
                    return Err(WaitError::Killed { errno, job });
                }
                Ok(Verdict::Undecided(doubt)) => {
                    let job = self.finish();
                    return Err(WaitError::Undecided { doubt, job });
                }
                Err(Error::TimedOut { .. }) => return Err(self.timed_out()),
                Err(source) => return Err(self.unknown(source)),
            }
        }
    }

    /// The end of the job as a fence that can be passed on: for other jobs to
    /// wait for ([`crate::JobBuilder::after`]), for other devices, for event
    /// loops.
    ///
    /// It tells when the job ends and whether it was killed. It does not tell
    /// whether it ran at all: a job that the driver dropped has a fence that is
    /// signalled, and one that [`PendingJob::wait`] runs again has another one.
    ///
    /// # Errors
    /// The backend has no sync_files, or the fence was lost right after SUBMIT;
    /// no file descriptor left.
    pub fn fence(&self) -> Result<SyncFile, Error> {
        let (Some(job), Evidence::Accepted(fence) | Evidence::Silent(fence)) =
            (&self.job, &self.evidence)
        else {
            return Err(match &self.evidence {
                Evidence::Lost(error) => error.clone(),
                // Only within `wait`, which takes the job with it.
                _ => Error::Unsupported {
                    call: Call::ExportSyncFile,
                },
            });
        };
        Ok(SyncFile::new(fence.sync_file()?, job.device.sharing()?))
    }

    /// Waits, then weighs fence and canary.
    fn verdict(&self, until: Deadline) -> Result<Verdict, Error> {
        let Some(job) = &self.job else {
            return Ok(Verdict::Ran);
        };
        for bo in &job.writes {
            // One fence for all: the first wait is the wait, the others only
            // give the buffers to the CPU.
            bo.prepare(until)?;
        }
        let (fence, accepted) = match &self.evidence {
            Evidence::Accepted(fence) => (fence.status(), true),
            Evidence::Silent(fence) => (fence.status(), false),
            Evidence::Lost(error) => (Err(error.clone()), false),
        };
        let signaled = match fence {
            Ok(FenceStatus::Active) => {
                // It may write what the CPU has been given.
                job.writes.iter().for_each(Bo::note_writer);
                return Ok(Verdict::Running);
            }
            Ok(FenceStatus::Failed(errno)) => return Ok(Verdict::Killed(errno)),
            Ok(FenceStatus::Signaled) if accepted => return Ok(Verdict::Ran),
            Ok(FenceStatus::Signaled) => Ok(()),
            Err(error) => Err(error),
        };
        if self.attempt == Attempt::Bare {
            return Ok(Verdict::LooksDropped);
        }
        let intact = job.canary.is_intact(self.attempt, &job.writes)?;
        let again = self.attempt == Attempt::First && job.canary.rerunnable;
        Ok(match (intact, signaled) {
            (Some(false), Ok(())) => Verdict::Ran,
            (Some(true), Ok(())) if self.attempt == Attempt::Second => Verdict::Dropped,
            // Also where the fence was lost: the second run has its own.
            (Some(_), _) if again => Verdict::LooksDropped,
            (Some(true), Ok(())) => Verdict::Undecided(Doubt::NotRepeatable),
            (None, Ok(())) => Verdict::Undecided(Doubt::NoCanary),
            (_, Err(error)) => Verdict::Undecided(Doubt::NoFence(error)),
        })
    }

    /// Submits the job once more, with the next canary.
    fn run_again(&mut self) -> Result<(), Error> {
        let Some(job) = &mut self.job else {
            return Ok(());
        };
        let next = self.attempt.next();
        tracing::debug!(?next, "a job looks dropped; running it again over a canary");
        let bare = self.attempt == Attempt::Bare;
        let again = job
            .canary
            .plant(next, &mut job.writes)
            .map(|atom| {
                // Of the first canary only, also where that was planted before
                // and could not be removed.
                if bare && self.replaced.is_none() {
                    self.replaced = atom;
                }
            })
            .and_then(|()| hand_over(&job.device, std::slice::from_ref(job)));
        if let Err(error) = again {
            // Nothing was submitted. With the output as it was a later wait
            // comes here again; should that fail too, it finds the canary gone
            // and must not believe it.
            match self.attempt {
                Attempt::Bare => job.canary.restore(self.replaced, &mut job.writes),
                before => {
                    if let Err(error) = job.canary.plant(before, &mut job.writes) {
                        self.evidence = Evidence::Lost(error);
                    }
                }
            }
            return Err(error);
        }
        self.attempt = next;
        self.evidence = Evidence::collect(job);
        Ok(())
    }

    /// Gives the output back as it was, where the job has not written it.
    fn remove_canary(&mut self) {
        let Some(job) = &mut self.job else {
            return;
        };
        if let Ok(Some(true)) = job.canary.is_intact(self.attempt, &job.writes) {
            job.canary.restore(self.replaced, &mut job.writes);
        }
    }

    /// The parts of a job that has ended.
    fn finish(&mut self) -> FinishedJob {
        let Some(mut job) = self.job.take() else {
            return FinishedJob::default();
        };
        job.device.note_end();
        job.reads.append(&mut job.scratch);
        FinishedJob {
            reads: job.reads,
            writes: job.writes,
        }
    }

    fn timed_out(self) -> WaitError {
        WaitError::TimedOut {
            job: Box::new(self),
        }
    }

    fn unknown(self, source: Error) -> WaitError {
        WaitError::Device {
            source,
            job: Box::new(self),
        }
    }
}

impl Drop for PendingJob {
    fn drop(&mut self) {
        let Some(job) = self.job.take() else {
            return;
        };
        let until = Deadline::after(DROP_WAIT);
        loop {
            let waited = job.writes.iter().try_for_each(|bo| bo.prepare(until));
            match waited {
                Ok(()) => break,
                // The wait failed, but the fence has signalled.
                Err(_) if self.evidence.says_ended() => break,
                // Nobody will ever tell. GEM_CLOSE fails likewise, so memory
                // and addresses stay the kernel's until it has closed the
                // file, and no other buffer gets them.
                Err(Error::DeviceGone { .. }) => break,
                Err(error) if until.has_passed() || matches!(error, Error::TimedOut { .. }) => {
                    tracing::error!(
                        %error,
                        "a job was dropped and did not end: its buffers are leaked"
                    );
                    mem::forget(job);
                    return;
                }
                Err(_) => thread::sleep(FENCE_POLL),
            }
        }
        job.device.note_end();
    }
}

impl Evidence {
    fn collect(job: &Job) -> Self {
        // Jobs without a written buffer are not built.
        let Some(bo) = job.writes.first() else {
            return Self::Lost(Error::Unsupported {
                call: Call::ExportSyncFile,
            });
        };
        let fence = job.device.backend().write_fence(bo.handle());
        match fence.and_then(|fence| Ok((fence.status()?, fence))) {
            Ok((FenceStatus::Signaled, fence)) if !fence.is_new() => Self::Silent(fence),
            Ok((_, fence)) => Self::Accepted(fence),
            Err(error) => Self::Lost(error),
        }
    }

    /// Whether the fence tells that the NPU is done with the job, or never had
    /// it.
    fn says_ended(&self) -> bool {
        let (Self::Accepted(fence) | Self::Silent(fence)) = self else {
            return false;
        };
        matches!(
            fence.status(),
            Ok(FenceStatus::Signaled | FenceStatus::Failed(_))
        )
    }
}

/// Puts a canary into the output of each job that starts with one; `replaced`
/// gets what was there, for as many jobs as were reached.
fn plant(device: &Device, jobs: &mut [Job], replaced: &mut Vec<Option<Atom>>) -> Result<(), Error> {
    if jobs.iter().any(|job| !job.device.is_same_file(device)) {
        return Err(Error::OtherDevice);
    }
    for job in jobs {
        replaced.push(job.canary.plant(job.canary.first, &mut job.writes)?);
    }
    Ok(())
}
