// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that were queued when their process ended. They never run, but others
//! may wait for them (Linux, drm_sched_entity_kill).

use std::sync::Arc;

use rustix::io::Errno;

use crate::jobs::job::AcceptedJob;
use crate::objects::fence::Fence;

/// Jobs that a process left queued when it ended.
#[derive(Debug)]
pub(crate) struct Orphans {
    /// The fence after which they end.
    pub(crate) earlier: Option<Arc<Fence>>,
    pub(crate) jobs: Vec<AcceptedJob>,
}

impl Orphans {
    fn must_wait(&self) -> bool {
        self.earlier.as_ref().is_some_and(|fence| fence.is_active())
    }
}

/// Removes and returns the jobs that no longer wait for a fence.
pub(crate) fn take_ending(all: &mut Vec<Orphans>) -> Vec<AcceptedJob> {
    let ending = all.extract_if(.., |orphans| !orphans.must_wait());
    ending.flat_map(|orphans| orphans.jobs).collect()
}

/// Ends such jobs. Call it without a lock, since it drops their objects.
pub(crate) fn end(jobs: Vec<AcceptedJob>) {
    for AcceptedJob { fence, request, .. } in jobs {
        request.note_end();
        fence.signal(Err(Errno::SRCH));
    }
}
