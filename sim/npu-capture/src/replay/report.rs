// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the jobs went, and what their objects hold.

use std::fmt;

use rknpu_regcmd::WrittenElement;

use crate::capture::JobOutcome;

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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:e}"),
        }
    }
}
