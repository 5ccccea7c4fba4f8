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

use crate::capture::{Capture, Outcome};
use crate::error::CaptureError;

/// What can be chosen about a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// How long a job is waited for.
    pub wait: Duration,
    /// Most bytes of buffer objects at a time.
    pub bytes_max: u64,
}

/// The driver kills a job after half a second; this leaves room for a slow
/// host that computes it in software.
const WAIT: Duration = Duration::from_secs(60);

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            wait: WAIT,
            bytes_max: 4 << 30,
        }
    }
}

/// Why a capture could not be run again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(#[from] rocket_uapi::Error),
    /// An object that no device can have.
    #[error("object {object}: {error}")]
    Length {
        /// Its number.
        object: usize,
        /// What is wrong with its length.
        error: LengthError,
    },
    /// Two objects of one job at one address.
    #[error("the objects {first} and {second} of one job lie at the same addresses")]
    Overlap {
        /// A number.
        first: usize,
        /// A number.
        second: usize,
    },
    /// The device gives no such address.
    #[error(
        "object {object} was at {wanted}, and this device places it at {got}: its driver gives \
         addresses in another order"
    )]
    Placement {
        /// Its number.
        object: usize,
        /// The recorded address.
        wanted: Iova,
        /// The address here.
        got: Iova,
    },
    /// More memory than allowed.
    #[error("the capture needs {bytes} bytes of buffer objects, more than the limit of {max}")]
    TooLarge {
        /// Bytes.
        bytes: u64,
        /// Most bytes.
        max: u64,
    },
}

/// What came of running a capture again.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Job by job.
    pub jobs: Vec<JobReport>,
}

impl Report {
    /// Whether all went as it was recorded.
    #[must_use]
    pub fn matches(&self) -> bool {
        self.jobs.iter().all(JobReport::matches)
    }
}

/// What came of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobReport {
    /// How it ended when it was recorded.
    pub recorded: Outcome,
    /// How it ended now.
    pub replayed: Outcome,
    /// What its objects hold now; `None` where the capture has no contents
    /// that could be compared.
    pub comparison: Option<Comparison>,
}

impl JobReport {
    /// Whether it went as it was recorded, as far as is known.
    #[must_use]
    pub fn matches(&self) -> bool {
        let same = self.recorded == Outcome::Unknown || self.recorded == self.replayed;
        let equal = self.comparison.as_ref();
        same && equal.is_none_or(|comparison| comparison.different == 0)
    }
}

/// The contents of a job's objects, then and now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Bytes that were compared.
    pub bytes: u64,
    /// Bytes that differ.
    pub different: u64,
    /// The first of them, by object and offset.
    pub first: Option<Difference>,
}

/// A byte that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The number of its object.
    pub object: usize,
    /// Its place in the object.
    pub offset: u64,
    /// Its address.
    pub iova: u64,
    /// What the recording has.
    pub recorded: u8,
    /// What is there now.
    pub replayed: u8,
    /// The output element that it belongs to, where a program tells.
    pub place: Option<Place>,
}

/// An element that a program writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Index of the program in the job.
    pub program: usize,
    /// The element.
    pub element: WrittenElement,
    /// Its recorded value.
    pub recorded: Value,
    /// Its value now.
    pub replayed: Value,
}

/// The value of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of an integer.
    Integer(i32),
    /// Of a float.
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
/// [`ReplayError`]: when the capture cannot be read or the device cannot be
/// brought into the recorded state. That a job ends otherwise than recorded is
/// in the report.
pub fn replay(
    capture: &Capture,
    device: &Device,
    options: &ReplayOptions,
) -> Result<Report, ReplayError> {
    run::Replay::new(capture, device, *options).all()
}
