// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a replay.

use rknpu_regcmd::Iova;
use rocket_uapi::LengthError;

use crate::error::CaptureError;

/// Why a capture could not be run again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A call of the device failed, and no job caused it.
    #[error("the device failed: {0}")]
    Device(#[from] rocket_uapi::Error),
    /// No device can have an object of this length.
    #[error("object {object}: {error}")]
    Length {
        /// The object's number in the capture.
        object: usize,
        /// What is wrong with its length.
        error: LengthError,
    },
    /// Two objects of one job overlap.
    #[error("the objects {first} and {second} of one job overlap in NPU addresses")]
    Overlap {
        /// Number of one of them in the capture.
        first: usize,
        /// Number of the other.
        second: usize,
    },
    /// The device gave another address than the recorded one.
    #[error(
        "object {object} was at {wanted}, but this device places it at {got}: its driver assigns \
         addresses in another order"
    )]
    Placement {
        /// The object's number in the capture.
        object: usize,
        /// Its NPU address in the recording.
        wanted: Iova,
        /// The NPU address that the device gave it here.
        got: Iova,
    },
    /// The capture has no such job.
    #[error("no job {job}: the capture has {jobs} jobs, counted from 0")]
    NoJob {
        /// The index of the job.
        job: usize,
        /// Jobs of the capture.
        jobs: usize,
    },
    /// The job has no such program.
    #[error("no program {program} in job {job}, which has {programs} programs, counted from 0")]
    NoProgram {
        /// Index of the job.
        job: usize,
        /// The index of the program.
        program: usize,
        /// Programs of the job.
        programs: usize,
    },
    /// A task cannot have so many words.
    #[error("the program has {words} words, and a task has at most {max}")]
    ProgramLength {
        /// Words of the program.
        words: usize,
        /// The limit.
        max: usize,
    },
    /// The capture needs more memory than allowed.
    #[error(
        "job {job} needs {bytes} bytes of memory for its buffer objects and the gaps between \
         them, more than the limit of {max}"
    )]
    TooLarge {
        /// Index of the first such job.
        job: usize,
        /// Bytes up to the end of its last object.
        bytes: u64,
        /// The limit, [`crate::ReplayOptions::bytes_max`].
        max: u64,
    },
    /// The capture needs more work than allowed.
    #[error(
        "all jobs together load and compare {bytes} bytes, with the gaps between them, more than \
         the limit of {max}"
    )]
    TooMuchWork {
        /// Bytes of the objects of each job, and of the gaps in each new file, added up.
        bytes: u64,
        /// The limit, [`crate::ReplayOptions::work_max`].
        max: u64,
    },
}
