// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a capture again, on the model or on a board, and comparing.
//!
//! Each job finds what it found when it was recorded, whatever the one before
//! it made of it this time: every job is judged for itself. Buffer objects lie
//! at their recorded addresses, so that the words are those of the recording.

mod compare;
mod place;
mod run;

use std::time::Duration;

use rknpu_regcmd::{Iova, WrittenElement};
use rocket_uapi::{Device, LengthError};

use crate::capture::{Capture, JobOutcome};
use crate::error::CaptureError;

/// What can be chosen about a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// How long a job is waited for.
    pub wait: Duration,
    /// Most bytes of buffer objects at a time. The gaps between the addresses of
    /// a job's objects count too: they are allocated for a moment.
    pub bytes_max: u64,
    /// Most bytes that all jobs together load and compare.
    pub work_max: u64,
}

/// Enough for all but large language models. A board has 4 GiB and more.
const BYTES_MAX: u64 = 1 << 30;
/// About ten seconds of a fast CPU.
const WORK_MAX: u64 = 64 << 30;

/// The driver kills a job after half a second; this leaves room for a slow
/// host that computes it in software.
const WAIT: Duration = Duration::from_secs(60);

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            wait: WAIT,
            bytes_max: BYTES_MAX,
            work_max: WORK_MAX,
        }
    }
}

/// Why a capture could not be run again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A call of the device failed, which no job is to blame for.
    #[error("the device failed: {0}")]
    Device(#[from] rocket_uapi::Error),
    /// An object that no device can have.
    #[error("object {object}: {error}")]
    Length {
        /// The object's number in the capture.
        object: usize,
        /// What is wrong with its length.
        error: LengthError,
    },
    /// Two objects of one job at one address.
    #[error("the objects {first} and {second} of one job lie at the same addresses")]
    Overlap {
        /// Number of one of them in the capture.
        first: usize,
        /// Number of the other.
        second: usize,
    },
    /// The device gives no such address.
    #[error(
        "object {object} was at {wanted}, and this device places it at {got}: its driver gives \
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
    /// More memory than allowed.
    #[error(
        "job {job} needs {bytes} bytes of memory for its buffer objects and the gaps between \
         them, more than the limit of {max}"
    )]
    TooLarge {
        /// Index of the first such job.
        job: usize,
        /// Bytes up to the end of its last object.
        bytes: u64,
        /// The limit, [`ReplayOptions::bytes_max`].
        max: u64,
    },
    /// More work than allowed.
    #[error("all jobs together load and compare {bytes} bytes, more than the limit of {max}")]
    TooMuchWork {
        /// Bytes of the objects of each job, added up.
        bytes: u64,
        /// The limit, [`ReplayOptions::work_max`].
        max: u64,
    },
}

/// What came of running a capture again.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayReport {
    /// The jobs, in the order of the capture.
    pub jobs: Vec<ReplayedJob>,
}

impl ReplayReport {
    /// Whether all went as it was recorded.
    #[must_use]
    pub fn matches(&self) -> bool {
        self.jobs.iter().all(ReplayedJob::matches)
    }
}

/// How one job went when it ran again.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedJob {
    /// How it ended when it was recorded.
    pub recorded: JobOutcome,
    /// How it ended now.
    pub replayed: JobOutcome,
    /// What its objects hold now; `None` where the capture has no contents
    /// that could be compared.
    pub comparison: Option<ContentsComparison>,
}

impl ReplayedJob {
    /// Whether it went as it was recorded, as far as is known.
    #[must_use]
    pub fn matches(&self) -> bool {
        let same = self.recorded == JobOutcome::Unknown || self.recorded == self.replayed;
        let equal = self.comparison.as_ref();
        same && equal.is_none_or(|comparison| comparison.different == 0)
    }
}

/// The contents of a job's objects, then and now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContentsComparison {
    /// Bytes that were compared.
    pub bytes: u64,
    /// Bytes that differ.
    pub different: u64,
    /// The first of them, by object and offset.
    pub first: Option<ByteDifference>,
}

/// A byte that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct ByteDifference {
    /// The number of its object.
    pub object: usize,
    /// Its offset in the object, bytes.
    pub offset: u64,
    /// Its NPU address.
    pub iova: u64,
    /// The byte in the recording.
    pub recorded: u8,
    /// The byte after the replay.
    pub replayed: u8,
    /// The output element that it belongs to, where a program tells.
    pub place: Option<ElementDifference>,
}

/// An element that a program writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ElementDifference {
    /// Index of the program in the job.
    pub program: usize,
    /// Where in the output tensor it lies, and its precision.
    pub element: WrittenElement,
    /// Its value in the recording.
    pub recorded: Value,
    /// Its value after the replay.
    pub replayed: Value,
}

/// The value of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An element of an integer precision.
    Integer(i32),
    /// An element of a float precision, widened to 32 bits.
    Float(f32),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:e}"),
        }
    }
}

/// Runs all jobs of `capture` on files of their own of `device`, in order,
/// and compares what comes out.
///
/// The programs run as they were recorded. On a board that is as safe as the
/// program that was recorded: the NPU reaches nothing but the files' own
/// objects, but a program may hang a core until the driver resets it.
///
/// # Errors
/// [`ReplayError`]: when the capture needs more than `options` allow, which is
/// found before the device is used; when the capture cannot be read or the device
/// cannot be brought into the recorded state. That a job ends otherwise than recorded is
/// in the report.
pub fn replay(
    capture: &Capture,
    device: &Device,
    options: &ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    run::Replay::new(capture, device, *options).all()
}
