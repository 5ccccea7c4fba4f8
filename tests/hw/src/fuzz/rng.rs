// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that a seed gives.

use std::ops::Range;

/// One thread's sequence.
#[derive(Debug)]
pub(super) struct Rng(fastrand::Rng);

impl Rng {
    /// A sequence of its own for each of a round's threads.
    pub(super) fn new(seed: u64, thread: u64) -> Self {
        let first = fastrand::Rng::with_seed(seed);
        Self((0..thread).fold(first, |mut before, _| before.fork()))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number of a range; of an empty one its start.
    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        self.0.u64(range.start..range.end.max(range.start + 1))
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }

    /// One of the values, if there is one.
    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        self.0.choice(of).copied()
    }

    /// Mostly `usual`, else one of the others.
    pub(super) fn mostly<T: Copy>(&mut self, usual: T, others: &[T]) -> T {
        if self.once_in(16) {
            self.pick(others).unwrap_or(usual)
        } else {
            usual
        }
    }
}
