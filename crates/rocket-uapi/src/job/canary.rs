// SPDX-License-Identifier: MIT OR Apache-2.0
//! Canaries: a pattern in the last atom of a job's output tells whether the
//! job wrote it.

use crate::bo::Bo;
use crate::error::Error;

/// Bytes of an atom, the least that the NPU writes.
const ATOM_BYTES: usize = rknpu_regcmd::ATOM_BYTES as usize;

/// Two patterns that differ in every byte. Any pattern is legal output, so an
/// intact first one proves nothing; a job whose output equals the first cannot
/// equal the second when it runs again.
const PATTERNS: [u8; 2] = [0xa5, 0x3c];

/// Which of the two submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Second,
}

impl Attempt {
    fn pattern(self) -> [u8; ATOM_BYTES] {
        [PATTERNS[self as usize]; ATOM_BYTES]
    }
}

/// What stands in the canary's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// That of the attempt.
    Of(Attempt),
    /// One of the two: putting the second there failed half-way.
    Either,
}

impl Pattern {
    fn matches(self, atom: &[u8]) -> bool {
        match self {
            Self::Of(attempt) => atom == attempt.pattern(),
            Self::Either => atom == Attempt::First.pattern() || atom == Attempt::Second.pattern(),
        }
    }
}

/// Where the canary sits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Canary {
    /// Index among the written buffers.
    pub(super) bo: usize,
    /// Byte offset of the atom.
    offset: usize,
}

impl Canary {
    /// The atom at `iova` in one of `writes`.
    pub(super) fn place(writes: &[Bo], iova: u32) -> Option<Self> {
        writes.iter().enumerate().find_map(|(bo, candidate)| {
            let offset = iova.checked_sub(candidate.iova().0)? as usize;
            (offset + ATOM_BYTES <= candidate.len()).then_some(Self { bo, offset })
        })
    }

    /// Puts the pattern of `attempt` there.
    pub(super) fn write(self, writes: &mut [Bo], attempt: Attempt) -> Result<(), Error> {
        let Some(bo) = writes.get_mut(self.bo) else {
            return Ok(());
        };
        // The object is idle: this job owns it and does not run yet.
        let mut guard = bo.write(crate::Deadline::FOREVER)?;
        if let Some(atom) = guard.get_mut(self.offset..self.offset + ATOM_BYTES) {
            atom.copy_from_slice(&attempt.pattern());
        }
        guard.finish()
    }

    /// Whether `pattern` is still there. The job has ended.
    pub(super) fn is_intact(self, writes: &[Bo], pattern: Pattern) -> Result<bool, Error> {
        let Some(bo) = writes.get(self.bo) else {
            return Ok(false);
        };
        let guard = bo.read(crate::Deadline::FOREVER)?;
        let atom = guard.get(self.offset..self.offset + ATOM_BYTES);
        Ok(atom.is_some_and(|atom| pattern.matches(atom)))
    }
}
