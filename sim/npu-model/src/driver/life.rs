// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of an open file while its objects are still in use.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::lock;

/// What the kernel's `rocket_file_priv` lives through.
#[derive(Debug, Default)]
pub(super) struct Life {
    over: AtomicBool,
    /// Whether its process ended rather than closing the file.
    died: AtomicBool,
    /// When the last job that used an object of this file ended.
    last_end: Mutex<Option<Instant>>,
}

impl Life {
    /// Whether the kernel has freed it.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether its process ended rather than closing the file: what its jobs do
    /// without their memory says nothing of their programs.
    pub(super) fn has_died(&self) -> bool {
        self.died.load(Ordering::Acquire)
    }

    /// Its process ended, if `died`, while the file was being closed or before.
    pub(super) fn note_death(&self, died: bool) {
        self.died.fetch_or(died, Ordering::Release);
    }

    /// The kernel frees it.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// A job that used an object of this file has ended.
    pub(super) fn note_job_end(&self) {
        *lock(&self.last_end) = Some(Instant::now());
    }

    /// Whether such a job ended less than `delay` ago.
    pub(super) fn job_ended_within(&self, delay: Duration) -> bool {
        lock(&self.last_end).is_some_and(|end| end.elapsed() < delay)
    }
}
