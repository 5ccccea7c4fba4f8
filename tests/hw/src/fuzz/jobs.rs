// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random jobs, most of them with an error.

use std::ops::Range;

use super::choices::{CallChoices, handle};
use super::world::World;
use crate::submit::{JobArgs, SubmitArgs, Task};

/// Invalid addresses: NULL, one that is not mapped, one of the kernel, and one that
/// is not canonical.
const ADDRESSES: [u64; 4] = [0, 16, 0xffff_8000_0000_0000, 0x00ff_ff00_0000_0001];

/// A count whose array is larger than 2 GiB, of which kernels warn.
const ABSURD: u32 = u32::MAX;

impl<C: CallChoices> World<C> {
    /// A SUBMIT on the file of a slot.
    pub(super) fn submission(&mut self, at: usize) -> SubmitArgs {
        let count = self.rng.mostly(1, &[0, 2, 3]);
        let jobs = (0..count).map(|_| self.job(at)).collect();
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

    fn job(&mut self, at: usize) -> JobArgs {
        let tasks = (0..self.rng.mostly(1, &[0, 2, 5]))
            .map(|_| self.task(at))
            .collect();
        let mut job = JobArgs {
            tasks,
            reads: self.handles(at, 0..3),
            writes: self.handles(at, 0..2),
            ..JobArgs::default()
        };
        if self.rng.once_in(2) {
            job.writes.push(self.slots[at].program.bo.handle);
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
        if self.limits.known_bugs && self.rng.once_in(4) {
            Some(ABSURD)
        } else {
            self.rng.pick(&[0, 1, 2, 7, 100])
        }
    }

    fn handles(&mut self, at: usize, count: Range<u64>) -> Vec<u32> {
        let known = self.slots[at].handles();
        let count = self.rng.within(count);
        (0..count).map(|_| handle(&mut self.rng, &known)).collect()
    }

    fn task(&mut self, at: usize) -> Task {
        let program = &self.slots[at].program;
        let right = program.task();
        if self.limits.hangs == 0 || !self.rng.once_in(8) {
            return right;
        }
        self.limits.hangs -= 1;
        let rng = &mut self.rng;
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
            _ => program.changed(&rng.program(program.words())),
        }
    }
}
