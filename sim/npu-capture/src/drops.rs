// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that `rocket` drops without an error.

use std::collections::BTreeSet;

use rocket_uapi::RawTask;

/// The reason why the driver never runs such a job although SUBMIT returns 0 (observed
/// on Linux 7.2); `None` if it runs. `exists` returns whether the file has a handle.
#[must_use]
pub fn why_dropped(
    tasks: &[RawTask],
    reads: &[u32],
    writes: &[u32],
    exists: impl Fn(u32) -> bool,
) -> Option<&'static str> {
    if tasks.is_empty() {
        return Some("it has no tasks");
    }
    if tasks.iter().any(|task| task.words == 0) {
        return Some("a task has no words");
    }
    let mut seen = BTreeSet::new();
    for &handle in reads.iter().chain(writes) {
        if !exists(handle) {
            return Some("a list names a handle that the file does not have");
        }
        // The reservation lock of an object cannot be taken twice.
        if !seen.insert(handle) {
            return Some("its lists name a handle twice");
        }
    }
    None
}
