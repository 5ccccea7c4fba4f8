// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a replay.

use rknpu_regcmd::WrittenElement;

use crate::capture::JobOutcome;

/// The results of replaying a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayReport {
    /// The jobs, in the order of the capture.
    pub jobs: Vec<ReplayedJob>,
}

impl ReplayReport {
    /// Whether all jobs match the recording.
    #[must_use]
    pub fn matches(&self) -> bool {
        self.jobs.iter().all(ReplayedJob::matches)
    }
}

/// The result of one replayed job.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedJob {
    /// How it ended in the recording.
    pub recorded: JobOutcome,
    /// How it ended in the replay.
    pub replayed: JobOutcome,
    /// The comparison of its objects' contents; `None` if the capture has none
    /// to compare.
    pub comparison: Option<ContentsComparison>,
}

impl ReplayedJob {
    /// Whether it matches the recording, as far as that is known.
    #[must_use]
    pub fn matches(&self) -> bool {
        let same = self.recorded == JobOutcome::Unknown || self.recorded == self.replayed;
        let equal = self.comparison.as_ref();
        same && equal.is_none_or(|comparison| comparison.different == 0)
    }
}

/// The result of comparing the contents of a job's objects.
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
    /// The output element that it belongs to, if a program writes one there.
    pub place: Option<ElementDifference>,
}

/// An element that a program writes.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementDifference {
    /// Index of the program in the job.
    pub program: usize,
    /// Its place in the output tensor, and its precision.
    pub element: WrittenElement,
    /// Its value in the recording, as text.
    pub recorded: String,
    /// Its value after the replay, as text.
    pub replayed: String,
}
