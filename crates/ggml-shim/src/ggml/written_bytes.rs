// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identifies weights where the host does not.
//!
//! ggml's RPC server does not pass on which buffers hold weights. This library takes bytes for
//! weights if the client wrote all of them (`set_tensor`), and no graph computes any of them. Then
//! they may be packed for the NPU; the graph decides whether they are multiplied. A buffer's hooks
//! ([`crate::entry::buffer_hooks`]) and each graph ([`crate::compute::serve`]) report what happens.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rangemap::RangeSet;

use crate::ggml::abi::Buffer;
use crate::ggml::ranges::covers;
use crate::ggml::shared::lock;

/// What happened to the bytes of each buffer.
#[derive(Debug, Default)]
pub(crate) struct WrittenBytes {
    /// Records by the address of the buffer.
    buffers: Mutex<HashMap<usize, BufferEvidence>>,
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct BufferEvidence {
    /// Addresses of bytes that the client wrote.
    given: RangeSet<usize>,
    /// Addresses of bytes that a graph computed at any time.
    computed: RangeSet<usize>,
}

impl WrittenBytes {
    /// Runs `change` on the record of `buffer`.
    fn change<T>(&self, buffer: *const Buffer, change: impl FnOnce(&mut BufferEvidence) -> T) -> T {
        // A panic can leave a set without one range.
        let mut buffers = lock(&self.buffers);
        let changed = change(buffers.entry(buffer.addr()).or_default());
        self.changes.fetch_add(1, Ordering::Release);
        changed
    }

    /// Number of changes so far. An answer of [`are_weights`](Self::are_weights) holds as long as
    /// this number is the same as before the call.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn known(&self, buffer: *const Buffer, says: impl FnOnce(&BufferEvidence) -> bool) -> bool {
        lock(&self.buffers).get(&buffer.addr()).is_some_and(says)
    }

    /// Records that the client wrote the bytes of `range`.
    pub(crate) fn given(&self, buffer: *const Buffer, range: &Range<usize>) {
        // The inputs of each token are written again and again.
        if !self.known(buffer, |bytes| covers(&bytes.given, range)) {
            self.change(buffer, |bytes| bytes.given.insert(range.clone()));
        }
    }

    /// Records that the bytes of `range` were filled with one value, so that they are not weights.
    pub(crate) fn filled(&self, buffer: *const Buffer, range: &Range<usize>) {
        if !range.is_empty() {
            self.change(buffer, |bytes| bytes.given.remove(range.clone()));
        }
    }

    /// Records that a graph computes the bytes of `range`. Returns whether the client wrote some of
    /// them.
    pub(crate) fn computed(&self, buffer: *const Buffer, range: &Range<usize>) -> bool {
        if self.known(buffer, |bytes| covers(&bytes.computed, range)) {
            return false;
        }
        self.change(buffer, |bytes| {
            bytes.computed.insert(range.clone());
            bytes.given.overlaps(range)
        })
    }

    /// Forgets a freed buffer.
    pub(crate) fn freed(&self, buffer: *const Buffer) {
        lock(&self.buffers).remove(&buffer.addr());
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether the bytes of `range` are weights.
    pub(crate) fn are_weights(&self, buffer: *const Buffer, range: &Range<usize>) -> bool {
        self.known(buffer, |bytes| {
            covers(&bytes.given, range) && !bytes.computed.overlaps(range)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn buffer(address: usize) -> *const Buffer {
        ptr::without_provenance(address)
    }

    #[test]
    fn weights_are_written_whole_and_never_computed() {
        let (evidence, one) = (WrittenBytes::default(), buffer(64));
        assert!(!evidence.are_weights(one, &(100..200)));
        evidence.given(one, &(100..150));
        assert!(!evidence.are_weights(one, &(100..200)));
        evidence.given(one, &(150..200));
        assert!(evidence.are_weights(one, &(100..200)));
        // Another buffer is not affected.
        assert!(!evidence.are_weights(buffer(128), &(100..200)));
        assert!(!evidence.computed(buffer(128), &(100..200)));
        assert!(evidence.are_weights(one, &(100..200)));

        assert!(evidence.computed(one, &(190..210)));
        assert!(!evidence.computed(one, &(190..210)), "it is known by now");
        assert!(!evidence.are_weights(one, &(100..200)));
        assert!(evidence.are_weights(one, &(100..190)));
        // Writing them once more does not help: the next graph may compute them.
        evidence.given(one, &(100..200));
        assert!(!evidence.are_weights(one, &(100..200)));

        // What is filled was not written.
        evidence.given(one, &(0..100));
        evidence.filled(one, &(40..60));
        assert!(!evidence.are_weights(one, &(0..100)));
        assert!(evidence.are_weights(one, &(60..100)));
        evidence.filled(one, &(0..usize::MAX));
        assert!(!evidence.are_weights(one, &(60..100)));
    }

    #[test]
    fn only_what_changes_answers_counts() {
        let (evidence, one) = (WrittenBytes::default(), buffer(64));
        let mut seen = evidence.changes();
        let mut changed = || std::mem::replace(&mut seen, evidence.changes()) != evidence.changes();
        evidence.given(one, &(0..100));
        assert!(changed());
        evidence.given(one, &(20..100));
        assert!(!changed(), "written again");
        evidence.computed(one, &(50..60));
        assert!(changed());
        evidence.computed(one, &(50..60));
        assert!(!changed(), "computed again");
        evidence.filled(one, &(0..10));
        assert!(changed());
        evidence.freed(one);
        assert!(changed());
    }

    #[test]
    fn a_buffer_at_the_address_of_an_old_one_is_new() {
        let (evidence, one) = (WrittenBytes::default(), buffer(64));
        evidence.given(one, &(0..100));
        assert!(evidence.computed(one, &(50..100)));
        evidence.freed(one);
        assert!(!evidence.are_weights(one, &(0..50)));
        evidence.given(one, &(0..100));
        assert!(evidence.are_weights(one, &(0..100)));
    }
}
