// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choices that decide which calls are made.

use std::ops::Range;

use rocket_uapi::PAGE_BYTES;

/// The last words of a matmul's program, which start it. The words before them have
/// the places in memory and the sizes.
const TRAILER: usize = 4;

/// A source of numbers: a generator with a seed, or a fuzzer's bytes.
pub trait CallChoices {
    /// Any number.
    fn any(&mut self) -> u64;

    /// A number in `range`; its start if it is empty.
    fn within(&mut self, range: Range<u64>) -> u64;

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }

    /// One of the values, if there is one.
    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let at = (!of.is_empty()).then(|| self.within(0..of.len() as u64))?;
        of.get(at as usize).copied()
    }

    /// Mostly `usual`, else one of the others.
    fn mostly<T: Copy>(&mut self, usual: T, others: &[T]) -> T {
        if self.once_in(16) {
            self.pick(others).unwrap_or(usual)
        } else {
            usual
        }
    }

    /// A program to run instead of `right`: `right` with a few words changed, or
    /// random words.
    fn program(&mut self, right: &[u64]) -> Vec<u64> {
        let mut words = right.to_vec();
        if self.once_in(5) {
            words.iter_mut().for_each(|word| *word = self.any());
            return words;
        }
        let end = words.len().saturating_sub(TRAILER) as u64;
        for _ in 0..=self.within(0..3) {
            let at = self.within(0..end) as usize;
            // Values stand at bits 16 to 47.
            words[at] ^= if self.once_in(2) {
                1 << self.within(16..48)
            } else {
                (self.any() & 0xffff_ffff) << 16
            };
        }
        words
    }
}

impl CallChoices for fastrand::Rng {
    fn any(&mut self) -> u64 {
        self.u64(..)
    }

    fn within(&mut self, range: Range<u64>) -> u64 {
        self.u64(range.start..range.end.max(range.start + 1))
    }
}

/// Mostly one of `of`, else a number that may be another object's handle, or none.
pub(super) fn handle(rng: &mut impl CallChoices, of: &[u32]) -> u32 {
    match rng.within(0..16) {
        0 => rng.within(0..24) as u32,
        1 => rng.any() as u32,
        _ => rng.pick(of).unwrap_or(1),
    }
}

/// A size of a buffer object: mostly a few pages.
pub(super) fn size(rng: &mut impl CallChoices, known_bugs: bool) -> u32 {
    let page = PAGE_BYTES as u64;
    let size = match rng.within(0..32) {
        0 => 0,
        1 => rng.within(0..8 << 20),
        2 if known_bugs => 1 << 31,
        3..12 => rng.within(1..4) * page,
        _ => rng.within(1..8 * page),
    };
    size as u32
}
