// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lifetime of an open file. Its objects and jobs may outlive the file.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::base::lock::lock;

/// Stage in the life of an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// A client has a descriptor.
    #[default]
    Open,
    /// The descriptor is closed. Mappings may keep the file.
    Closed,
    /// The kernel has freed its `rocket_file_priv`.
    Freed,
}

/// Lifetime of the kernel's `rocket_file_priv`.
#[derive(Debug, Default)]
pub(crate) struct Life(Mutex<LifeState>);

#[derive(Debug, Default)]
struct LifeState {
    stage: Stage,
    /// Whether its process ended instead of closing the file.
    process_died: bool,
    /// When the last job that used an object of this file ended.
    last_job_end: Option<Instant>,
}

impl Life {
    pub(crate) fn close(&self) {
        let mut state = lock(&self.0);
        state.stage = state.stage.max(Stage::Closed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.0).stage != Stage::Open
    }

    /// Records that the kernel has freed it.
    pub(crate) fn free(&self) {
        lock(&self.0).stage = Stage::Freed;
    }

    pub(crate) fn is_freed(&self) -> bool {
        lock(&self.0).stage == Stage::Freed
    }

    /// Records, if `died`, that its process ended before or during the close.
    pub(crate) fn note_death(&self, died: bool) {
        lock(&self.0).process_died |= died;
    }

    /// Whether its process ended instead of closing the file. Its jobs then run
    /// without their memory, so what they do says nothing about their programs.
    pub(crate) fn has_died(&self) -> bool {
        lock(&self.0).process_died
    }

    /// Records that a job that used an object of this file has ended.
    pub(crate) fn note_job_end(&self) {
        lock(&self.0).last_job_end = Some(Instant::now());
    }

    /// Whether such a job ended less than `delay` ago.
    pub(crate) fn job_ended_within(&self, delay: Duration) -> bool {
        let end = lock(&self.0).last_job_end;
        end.is_some_and(|end| end.elapsed() < delay)
    }
}
