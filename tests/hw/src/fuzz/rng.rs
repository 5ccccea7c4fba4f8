// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that a seed gives.

use std::ops::Range;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// A sequence of its own for each of a round's threads.
    pub(super) fn new(seed: u64, thread: u64) -> Self {
        let mut rng = Self(seed);
        Self(rng.next().wrapping_add(thread))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number of a range that is not empty.
    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }

    /// One of the values; the first, if there is just one.
    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.within(0..of.len() as u64) as usize).copied()
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
