// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proving that a job ran.
//!
//! SUBMIT returns 0 for a job that the driver drops, and PREP_BO returns 0 for
//! one that it killed. Two things tell:
//!
//! * **The fence** of a written BO, exported right after SUBMIT. While it is
//!   active the job has been accepted; a negative status at its end means
//!   killed. A fence that is signalled already at that moment is silent: the
//!   job was quick, or there never was one.
//! * **The canary**, for that case: 16 bytes put before SUBMIT where a program
//!   of the job must write an atom. If they are gone, the job ran. If they are
//!   intact, either the job did not run, or its result happens to be these
//!   bytes, for every bit pattern is a legal result. A second run with a
//!   canary that differs in every byte decides: a job computes the same again,
//!   and cannot match both.
//!
//! # Which jobs may run twice
//!
//! A job may run again if each program reads, the second time, the bytes that
//! it read the first time. That holds if no program reads what it or a later
//! program of the job writes: a byte that is read was then written by an
//! earlier program, which by induction writes the same again before, or by
//! none at all. Extents err towards larger, so at worst a job is not rerun.
//!
//! # Where a canary may be
//!
//! In an atom of a buffer with results that some program must have written when
//! it ends, and that neither this program nor an earlier one reads. A dropped job
//! is dropped whole, so the atom of any program of a job will do; the last one's
//! is best.

use rknpu_regcmd::{ATOM_BYTES, DmaAccess, Iova};

use crate::bo::Bo;
use crate::error::Error;
use crate::program_bo::Placed;
use crate::units::Deadline;

/// Bytes of a canary.
const CANARY_BYTES: usize = ATOM_BYTES as usize;

/// Outputs up to this length get a canary before SUBMIT, bytes; jobs with longer
/// buffers to write only where they look dropped. Usually the fence is exported
/// while the job runs: that takes a few system calls after SUBMIT, and a job of
/// one tiny task about 50 us (E-time-submit), one that fills a
/// longer buffer than this several times as long. Where the job was faster, it
/// runs again. Not measured on a board.
pub const CANARY_AT_ONCE_MAX: usize = 64 << 10;

/// The bytes of one atom.
pub(super) type Atom = [u8; CANARY_BYTES];

/// First canary. Any value works; this one is neither a small number nor a
/// usual float in any lane.
const FIRST: Atom = *b"\xa5\xc3\x96\xe1\x5a\x3c\x69\x1e\xd2\xb4\x87\xf0\x2d\x4b\x78\x0f";

/// Second canary: differs from the first in every bit.
const SECOND: Atom = complement(FIRST);

const fn complement(mut atom: Atom) -> Atom {
    let mut index = 0;
    while index < atom.len() {
        atom[index] = !atom[index];
        index += 1;
    }
    atom
}

/// Which canary is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// None.
    Bare,
    First,
    Second,
}

impl Attempt {
    fn canary(self) -> Option<Atom> {
        match self {
            Self::Bare => None,
            Self::First => Some(FIRST),
            Self::Second => Some(SECOND),
        }
    }

    /// What a job runs with that looks dropped.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Bare => Self::First,
            Self::First | Self::Second => Self::Second,
        }
    }
}

/// What a job allows for its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CanaryPlan {
    /// Index among the written BOs, and offset in bytes.
    spot: Option<(usize, usize)>,
    /// Whether the job computes the same a second time.
    pub(super) rerunnable: bool,
    /// What it runs with first.
    pub(super) first: Attempt,
}

impl CanaryPlan {
    /// The plan for a job that runs `programs` in order and may write
    /// `writes`. A job that shares buffers with others runs once: what it
    /// reads may have changed, what it wrote may be in use.
    pub(super) fn of(programs: &[Placed], writes: &[Bo], shares: bool) -> Self {
        let spot = free_atoms(programs).find_map(|atom| locate(atom, writes));
        let rerunnable = !shares && rerunnable(programs);
        let long = spot.is_some_and(|(index, _)| writes[index].len() > CANARY_AT_ONCE_MAX);
        Self {
            spot,
            rerunnable,
            first: if long && rerunnable {
                Attempt::Bare
            } else {
                Attempt::First
            },
        }
    }

    /// Puts a canary in its place, if it has one, and returns what was there.
    pub(super) fn plant(&self, attempt: Attempt, writes: &mut [Bo]) -> Result<Option<Atom>, Error> {
        match attempt.canary() {
            Some(canary) => self.exchange(canary, writes),
            None => Ok(None),
        }
    }

    /// Puts back what [`CanaryPlan::plant`] found.
    pub(super) fn restore(&self, before: Option<Atom>, writes: &mut [Bo]) {
        if let Some(before) = before
            && let Err(error) = self.exchange(before, writes)
        {
            tracing::warn!(%error, "an output buffer keeps a canary in its last atom");
        }
    }

    fn exchange(&self, new: Atom, writes: &mut [Bo]) -> Result<Option<Atom>, Error> {
        let Some((index, offset)) = self.spot else {
            return Ok(None);
        };
        let Some(bo) = writes.get_mut(index) else {
            return Ok(None);
        };
        // The BO is idle: the job owns it, and does not run.
        let (old, given_back) = put(bo, offset, new)?;
        if let Err(error) = given_back {
            // Let the caller find the output as it was.
            if let Err(error) = put(bo, offset, old) {
                tracing::warn!(%error, "an output buffer keeps a canary");
            }
            return Err(error);
        }
        Ok(Some(old))
    }

    /// Whether the canary is still there, in a job that has ended; `None`
    /// where there is no place for one.
    pub(super) fn is_intact(&self, attempt: Attempt, writes: &[Bo]) -> Result<Option<bool>, Error> {
        let (Some((index, offset)), Some(canary)) = (self.spot, attempt.canary()) else {
            return Ok(None);
        };
        let Some(bo) = writes.get(index) else {
            return Ok(None);
        };
        let access = bo.read(Deadline::FOREVER)?;
        let found = access.get(offset..offset + CANARY_BYTES);
        Ok(found.map(|found| found == canary))
    }
}

/// Replaces an atom of a BO. Returns what was there, and how giving the BO back
/// to the NPU went.
fn put(bo: &mut Bo, offset: usize, new: Atom) -> Result<(Atom, Result<(), Error>), Error> {
    let mut old = Atom::default();
    let mut access = bo.write(Deadline::FOREVER)?;
    if let Some(bytes) = access.get_mut(offset..offset + CANARY_BYTES) {
        old.copy_from_slice(bytes);
        bytes.copy_from_slice(&new);
    }
    Ok((old, access.finish()))
}

fn locate(atom: Iova, writes: &[Bo]) -> Option<(usize, usize)> {
    let start = u64::from(atom.0);
    let end = start + CANARY_BYTES as u64;
    writes
        .iter()
        .enumerate()
        .find_map(|(index, bo)| Some((index, bo.offset_of(start, end)?)))
}

/// The atoms that some program must have written, and that no program reads
/// before; those of the last program first.
fn free_atoms(programs: &[Placed]) -> impl Iterator<Item = Iova> {
    programs
        .iter()
        .enumerate()
        .rev()
        .filter_map(|(index, program)| Some((&programs[..=index], program.last_written_atom?)))
        .filter(|(before, atom)| !before.iter().any(|program| reads_atom(program, *atom)))
        .map(|(_, atom)| atom)
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

fn ranges(program: &Placed, access: DmaAccess) -> impl Iterator<Item = (u64, u64)> {
    program
        .extents
        .iter()
        .filter(move |extent| extent.access == access)
        .map(|extent| (extent.start, extent.end))
}

fn reads_atom(program: &Placed, atom: Iova) -> bool {
    let start = u64::from(atom.0);
    let bytes = (start, start + CANARY_BYTES as u64);
    ranges(program, DmaAccess::Read).any(|read| overlap(read, bytes))
}

fn rerunnable(programs: &[Placed]) -> bool {
    programs.iter().enumerate().all(|(index, program)| {
        ranges(program, DmaAccess::Read).all(|read| {
            programs[index..]
                .iter()
                .flat_map(|later| ranges(later, DmaAccess::Write))
                .all(|write| !overlap(read, write))
        })
    })
}

#[cfg(test)]
mod tests {
    use rknpu_regcmd::{DmaEngine, Extent};

    use super::*;
    use crate::backend::RawTask;

    fn program(reads: &[(u64, u64)], writes: &[(u64, u64)]) -> Placed {
        let extent = |engine: DmaEngine, &(start, end): &(u64, u64)| Extent {
            engine,
            start,
            end,
            access: engine.access(),
        };
        let reads = reads.iter().map(|range| extent(DmaEngine::Feature, range));
        let written = writes
            .iter()
            .map(|range| extent(DmaEngine::DpuWrite, range));
        Placed {
            task: RawTask {
                regcmd: Iova(0),
                words: 2,
            },
            extents: reads.chain(written).collect(),
            last_written_atom: writes.last().map(|range| Iova(range.1 as u32 - 16)),
        }
    }

    #[test]
    fn the_canaries_share_no_byte() {
        assert!(FIRST.iter().zip(SECOND).all(|(&a, b)| a != b));
    }

    #[test]
    fn separate_inputs_and_outputs_run_twice() {
        let first = program(&[(0, 64)], &[(64, 128)]);
        let second = program(&[(64, 128)], &[(128, 192)]);
        assert!(rerunnable(std::slice::from_ref(&first)));
        let chain = [first.clone(), second.clone()];
        assert!(rerunnable(&chain), "reads an earlier result");
        assert!(!rerunnable(&[second, first]), "its input is overwritten");
    }

    #[test]
    fn work_in_place_runs_once() {
        assert!(!rerunnable(&[program(&[(0, 64)], &[(48, 128)])]));
        assert!(rerunnable(&[program(&[(0, 64)], &[(64, 128)])]));
    }

    #[test]
    fn a_canary_never_sits_where_it_would_be_read() {
        let last_free_atom = |programs: &[Placed]| free_atoms(programs).next();
        let apart = program(&[(0, 64)], &[(64, 128)]);
        let in_place = program(&[(64, 128)], &[(64, 128)]);
        let accumulate = program(&[(112, 128)], &[(112, 128)]);
        assert_eq!(
            last_free_atom(std::slice::from_ref(&apart)),
            Some(Iova(112))
        );
        assert_eq!(last_free_atom(std::slice::from_ref(&in_place)), None);
        // The second reads what the first wrote there: the first's atom is
        // written before it is read.
        assert_eq!(last_free_atom(&[apart.clone(), in_place]), Some(Iova(112)));
        let other = program(&[(0, 64)], &[(128, 192)]);
        assert_eq!(last_free_atom(&[other, accumulate]), Some(Iova(176)));
    }
}
