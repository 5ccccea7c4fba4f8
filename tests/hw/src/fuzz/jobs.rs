// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random jobs, most of them with an error.

use rocket_uapi::PAGE_BYTES;

use super::choices::CallChoices;
use crate::program::MatmulProgram;
use crate::submit::{JobArgs, SubmitArgs, Task};

/// Invalid addresses: NULL, one that is not mapped, one of the kernel, and one that
/// is not canonical.
const ADDRESSES: [u64; 4] = [0, 16, 0xffff_8000_0000_0000, 0x00ff_ff00_0000_0001];

/// A count whose array is larger than 2 GiB, of which kernels warn.
const ABSURD: u32 = u32::MAX;

/// The objects that random jobs are made of.
pub(super) struct Jobs<'a, C> {
    pub(super) rng: &'a mut C,
    pub(super) program: &'a MatmulProgram,
    pub(super) handles: &'a [u32],
    /// Number of tasks that may still hang; each costs 500 ms.
    pub(super) hangs: &'a mut u32,
    pub(super) known_bugs: bool,
}

impl<C: CallChoices> Jobs<'_, C> {
    pub(super) fn submission(&mut self) -> SubmitArgs {
        let count = self.rng.mostly(1, &[0, 2, 3]);
        let jobs = (0..count).map(|_| self.job()).collect();
        let mut submission = SubmitArgs::of(jobs);
        let size = submission.job_struct_size;
        submission.job_struct_size = self.rng.mostly(size, &[0, 39, 41, 48, 64, u32::MAX]);
        submission.reserved = self.rng.mostly(0, &[1, u64::MAX]);
        if self.rng.once_in(32) {
            submission.address = self.rng.pick(&ADDRESSES);
        }
        if self.rng.once_in(32) {
            submission.job_count = self.count();
        }
        submission
    }

    fn job(&mut self) -> JobArgs {
        let tasks = (0..self.rng.mostly(1, &[0, 2, 5]))
            .map(|_| self.task())
            .collect();
        let mut job = JobArgs {
            tasks,
            reads: self.handles(0..3),
            writes: self.handles(0..2),
            ..JobArgs::default()
        };
        if self.rng.once_in(2) {
            job.writes.push(self.program.bo.handle);
        }
        if self.rng.once_in(24) {
            job.task_struct_size = self.rng.pick(&[0, 4, 7, 9, 12, 16, 64, u32::MAX]);
        }
        for index in 0..3 {
            if self.rng.once_in(48) {
                job.counts[index] = self.count();
            }
            if self.rng.once_in(48) {
                job.addresses[index] = self.rng.pick(&ADDRESSES);
            }
        }
        job
    }

    fn count(&mut self) -> Option<u32> {
        if self.known_bugs && self.rng.once_in(4) {
            Some(ABSURD)
        } else {
            self.rng.pick(&[0, 1, 2, 7, 100])
        }
    }

    fn handles(&mut self, count: std::ops::Range<u64>) -> Vec<u32> {
        let count = self.rng.within(count);
        (0..count).map(|_| handle(self.rng, self.handles)).collect()
    }

    fn task(&mut self) -> Task {
        let right = self.program.task();
        if *self.hangs == 0 || !self.rng.once_in(8) {
            return right;
        }
        *self.hangs -= 1;
        let rng = &mut *self.rng;
        match rng.within(0..8) {
            0 => Task {
                regcmd: rng.any() as u32,
                ..right
            },
            1 => Task {
                regcmd: right.regcmd + rng.within(1..16) as u32,
                ..right
            },
            2 => Task {
                regcmd_count: rng.pick(&[0, 1, 2, 1000, u32::MAX]).unwrap_or_default(),
                ..right
            },
            _ => self.program.changed(&rng.program(self.program.words())),
        }
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
