// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that were queued when their process ended: nobody runs them, but
//! others may wait for them (Linux, drm_sched_entity_kill).

use std::sync::Arc;

use rustix::io::Errno;

use super::fence::Fence;
use super::job::AcceptedJob;

/// Jobs that a process left queued when it ended.
#[derive(Debug)]
pub(super) struct Orphans {
    /// They end behind this one.
    pub(super) behind: Option<Arc<Fence>>,
    pub(super) jobs: Vec<AcceptedJob>,
}

impl Orphans {
    fn must_wait(&self) -> bool {
        self.behind.as_ref().is_some_and(|fence| fence.is_active())
    }
}

/// Takes the jobs out whose turn to end has come.
pub(super) fn take_ending(all: &mut Vec<Orphans>) -> Vec<AcceptedJob> {
    let ending = all.extract_if(.., |orphans| !orphans.must_wait());
    ending.flat_map(|orphans| orphans.jobs).collect()
}

/// Ends such jobs. To be called without a lock: what they refer to goes.
pub(super) fn end(jobs: Vec<AcceptedJob>) {
    for AcceptedJob { fence, request, .. } in jobs {
        request.note_end();
        fence.signal(Err(Errno::SRCH));
    }
}
