// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of jobs. Each gives the buffers back.

use rknpu_regcmd::Extent;
use thiserror::Error;

use crate::Errno;
use crate::bo::Bo;
use crate::error::{Error, ProgramError};
use crate::job::builder::MAX_PROGRAMS;
use crate::job::{FinishedJob, Job, PendingJob};
use crate::units::Handle;

/// Why a job was not built: the driver would have dropped it without a word,
/// or the NPU would have left its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No program.
    #[error("a job without a program; the driver would drop it without telling")]
    NoPrograms,
    /// A program index that the program buffer does not have.
    #[error("program {index} of a buffer that holds {len}")]
    NoSuchProgram {
        /// The index.
        index: usize,
        /// How many there are.
        len: usize,
    },
    /// More programs than any use has.
    #[error("a job of {count} programs; split it into jobs of at most {MAX_PROGRAMS}")]
    TooManyPrograms {
        /// How many.
        count: usize,
    },
    /// A program without words, or with more than the NPU can fetch.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Nothing is written.
    #[error("a job that writes no buffer object; there would be no fence to wait for")]
    NothingWritten,
    /// A BO named twice.
    #[error("buffer object {handle} is named twice; the driver would drop the job without telling")]
    NamedTwice {
        /// The BO.
        handle: Handle,
    },
    /// A BO of another open file.
    #[error("buffer object {handle} belongs to another open file, where addresses differ")]
    ForeignBo {
        /// The BO.
        handle: Handle,
    },
    /// A program reads what the job does not own.
    #[error("the {0} is read, but lies in no buffer object of the job")]
    ReadOutside(Extent),
    /// A program writes what the job does not own for writing.
    #[error("the {0} is written, but lies in no buffer object that the job lists as written")]
    WriteOutside(Extent),
}

/// A job that was not built, and the buffers meant for it.
#[derive(Debug, Error)]
#[error("{refusal}")]
pub struct BuildError {
    /// Why.
    pub refusal: Refusal,
    /// Buffers that would have been read, in the order given.
    pub reads: Vec<Bo>,
    /// Buffers that would have been written, in the order given.
    pub writes: Vec<Bo>,
}

/// A SUBMIT that the driver refused.
#[derive(Debug, Error)]
#[error("none of {} jobs was submitted: {source}", jobs.len())]
pub struct SubmitError {
    /// Why.
    #[source]
    pub source: Error,
    /// The jobs, as they were.
    pub jobs: Vec<Job>,
}

/// A job whose result cannot be used, or is not there yet.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Not finished at the deadline. Wait again.
    #[error("the job had not ended at the deadline; wait again, or drop it and give it up")]
    TimedOut {
        /// The job.
        job: Box<PendingJob>,
    },
    /// The driver killed it: it ran for longer than 500 ms, or hung. Proof: the
    /// fence of a written BO carries an error.
    #[error(
        "the driver killed the job ({errno}, says the fence of its output): it ran for longer \
         than the driver's 500 ms, or its program hung"
    )]
    Killed {
        /// What the fence says.
        errno: Errno,
        /// The buffers; contents of written ones are unspecified.
        job: FinishedJob,
    },
    /// The driver dropped it before it ran. Proof: right after SUBMIT no fence
    /// was pending, twice, and two canaries that differ in every byte survived
    /// in the output.
    #[error(
        "the driver accepted the job and did not run it: no fence was pending after SUBMIT, and \
         the canary in the output's last atom is intact after two submissions"
    )]
    Dropped {
        /// The buffers, as they were before.
        job: FinishedJob,
    },
    /// It has ended, or never began; which of the two cannot be proved.
    #[error("that the job ran cannot be proved: {doubt}")]
    Undecided {
        /// Why not.
        #[source]
        doubt: Doubt,
        /// The buffers.
        job: FinishedJob,
    },
    /// The device did not answer a question about the job. The job may still
    /// run; wait again.
    #[error("the state of the job could not be learnt: {source}")]
    Device {
        /// Why.
        #[source]
        source: Error,
        /// The job.
        job: Box<PendingJob>,
    },
}

/// Why it cannot be proved that a job ran. Its buffers are idle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Doubt {
    /// No fence was pending right after SUBMIT and the canary is intact, so
    /// the job looks dropped; but it overwrites its own input or shares buffers
    /// with others, so that running it again to make sure could change the
    /// result.
    #[error(
        "no fence was pending after SUBMIT and the canary is intact, so it looks dropped; but it \
         overwrites its own input, or shares buffers, and cannot be run again to make sure"
    )]
    NotRepeatable,
    /// No fence was pending right after SUBMIT, and the job has no place for a
    /// canary: each atom that it is known to write is input before.
    #[error(
        "no fence was pending after SUBMIT, and it reads each place where a canary could tell; \
         give it an output that is not also input"
    )]
    NoCanary,
    /// There is no fence to look at, so that a killed job looks like one that
    /// ran.
    #[error("its fence could not be looked at: {0}")]
    NoFence(Error),
}

impl WaitError {
    /// The buffers, where the job has ended.
    #[must_use]
    pub fn into_finished(self) -> Option<FinishedJob> {
        match self {
            Self::Killed { job, .. } | Self::Dropped { job } | Self::Undecided { job, .. } => {
                Some(job)
            }
            Self::TimedOut { .. } | Self::Device { .. } => None,
        }
    }
}
