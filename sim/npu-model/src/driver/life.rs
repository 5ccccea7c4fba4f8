// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of an open file, which its objects and jobs outlive.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// How far an open file has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// A client has a descriptor.
    #[default]
    Open,
    /// Its descriptor is closed. Mappings may keep it.
    Closed,
    /// The kernel has freed its `rocket_file_priv`.
    Freed,
}

/// What the kernel's `rocket_file_priv` lives through.
#[derive(Debug, Default)]
pub(super) struct Life(Mutex<LifeState>);

#[derive(Debug, Default)]
struct LifeState {
    stage: Stage,
    /// Whether its process ended rather than closing the file.
    process_died: bool,
    /// When the last job that used an object of this file ended.
    last_job_end: Option<Instant>,
}

impl Life {
    /// Its descriptor is closed.
    pub(super) fn close(&self) {
        let mut state = lock(&self.0);
        if state.stage == Stage::Open {
            state.stage = Stage::Closed;
        }
    }

    /// Whether its descriptor is closed.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.0).stage != Stage::Open
    }

    /// The kernel frees it.
    pub(super) fn free(&self) {
        lock(&self.0).stage = Stage::Freed;
    }

    /// Whether the kernel has freed it.
    pub(super) fn is_freed(&self) -> bool {
        lock(&self.0).stage == Stage::Freed
    }

    /// Its process ended, if `died`, while the file was being closed or before.
    pub(super) fn note_death(&self, died: bool) {
        lock(&self.0).process_died |= died;
    }

    /// Whether its process ended rather than closing the file: what its jobs do
    /// without their memory says nothing of their programs.
    pub(super) fn has_died(&self) -> bool {
        lock(&self.0).process_died
    }

    /// A job that used an object of this file has ended.
    pub(super) fn note_job_end(&self) {
        lock(&self.0).last_job_end = Some(Instant::now());
    }

    /// Whether such a job ended less than `delay` ago.
    pub(super) fn job_ended_within(&self, delay: Duration) -> bool {
        let end = lock(&self.0).last_job_end;
        end.is_some_and(|end| end.elapsed() < delay)
    }
}
