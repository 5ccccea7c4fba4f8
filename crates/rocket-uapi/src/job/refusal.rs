// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of jobs. Each gives the buffers back.

use rknpu_regcmd::Extent;
use thiserror::Error;

use crate::bo::Bo;
use crate::error::{Error, ProgramError};
use crate::job::{FinishedJob, Job, PendingJob};
use crate::units::Handle;

/// Most programs of a job. The driver's own limit is the memory for copies of
/// them, and a count with the top bits set makes it print a kernel warning.
pub(super) const MAX_PROGRAMS: usize = 1 << 16;

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
        /// The index that was asked for.
        index: usize,
        /// Programs that the buffer object holds.
        len: usize,
    },
    /// More programs than any use has.
    #[error("a job of {count} programs; split it into jobs of at most {MAX_PROGRAMS}")]
    TooManyPrograms {
        /// Programs in all.
        count: usize,
    },
    /// A program without words, or with more than the NPU can fetch.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Nothing is written.
    #[error("a job that writes no buffer object, and so has no result")]
    NothingWritten,
    /// A BO named twice.
    #[error("buffer object {handle} is named twice; the driver would drop the job without telling")]
    NamedTwice {
        /// The handle that came twice.
        handle: Handle,
    },
    /// A BO of another open file.
    #[error("buffer object {handle} belongs to another open file, where addresses differ")]
    ForeignBo {
        /// Its handle in the other file.
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
    /// What is wrong with the job.
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
    /// What the driver said to SUBMIT.
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
        /// The job, which goes on.
        job: Box<PendingJob>,
    },
    /// The driver took it and ended it early. Proof: the job's page was busy after
    /// SUBMIT, and its last task did not run. Kernels up to 7.0 do not tell the two
    /// causes apart: where power or IOMMU fail, their fence never signals, and the
    /// same timeout ends the job.
    #[error(
        "the driver ended the job before its last task: either the job hung or ran for longer \
         than the driver's 500 ms, or the driver could not power the NPU or attach its IOMMU; \
         the kernel log tells which (`dmesg | grep -i -e rocket -e iommu`)"
    )]
    Killed {
        /// The buffers; contents of written ones are unspecified.
        job: FinishedJob,
    },
    /// The driver dropped it before it ran. Proof: it was not busy after SUBMIT,
    /// it was over too early for a kill, and its last task did not run.
    #[error(
        "the driver accepted the job and did not run it: it was idle right after SUBMIT, and its \
         last task did not run"
    )]
    Dropped {
        /// The buffers; contents of written ones are unspecified.
        job: FinishedJob,
    },
    /// It did not run to its end, and this process looked too late to say more:
    /// it was dropped, or killed.
    #[error("the driver accepted the job and did not run it to its end: it dropped or killed it")]
    DroppedOrKilled {
        /// The buffers; contents of written ones are unspecified.
        job: FinishedJob,
    },
    /// The device did not answer a question about the job. The job may still
    /// run; wait again.
    #[error("the state of the job could not be learnt: {source}")]
    Device {
        /// What the device said to the question.
        #[source]
        source: Error,
        /// The job, which may still run.
        job: Box<PendingJob>,
    },
}

impl WaitError {
    /// The buffers, where the job has ended.
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
