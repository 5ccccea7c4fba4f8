// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs into the driver's hands: the one place where the safe interface
//! promises what a program may touch.

use super::builder::Job;
use super::witness::Witness;
use crate::bo::{Bo, FrozenBo};
use crate::device::Device;
use crate::error::Error;
use crate::raw_job::{RawJob, RawTask};
use crate::units::Handle;

/// The lists of one job.
struct Lists {
    tasks: Vec<RawTask>,
    reads: Vec<Handle>,
    writes: Vec<Handle>,
}

impl Lists {
    fn new((job, witness): &(Job, Witness)) -> Self {
        let mut tasks = job.tasks.clone();
        tasks.push(witness.task());
        let mut writes = job.write_handles();
        writes.push(witness.handle());
        let mut reads = job.read_handles();
        reads.push(witness.operands());
        Self {
            tasks,
            reads,
            writes,
        }
    }
}

/// Gives the jobs' buffers to the NPU, then the jobs to the driver, in one SUBMIT.
pub(super) fn hand_over(device: &Device, jobs: &[(Job, Witness)]) -> Result<(), Error> {
    let lists: Vec<_> = jobs.iter().map(Lists::new).collect();
    let raw: Vec<_> = lists
        .iter()
        .map(|lists| RawJob {
            tasks: &lists.tasks,
            reads: &lists.reads,
            writes: &lists.writes,
        })
        .collect();
    for (job, witness) in jobs {
        job.writes
            .iter()
            .chain(&job.reads)
            .try_for_each(Bo::give_back)?;
        let mut frozen = job.frozen.iter().map(FrozenBo::bo);
        frozen.try_for_each(Bo::give_back)?;
        job.writes.iter().for_each(Bo::note_writer);
        witness.note_writer();
        let mut after = job.after.iter();
        after.try_for_each(|fence| witness.hold_for(fence))?;
    }
    // SAFETY: the words are those of linked programs in frozen BOs, which
    // nobody changes. `JobBuilder::build` checked that each byte that an
    // engine can reach by their register values lies in a BO of the job, and a
    // written one in a BO that it lists as written (the words themselves, with
    // the one that a fetch in pairs may read behind them, lie in the program
    // BO). The witness's words, which nobody changes either, lie with all that
    // its program writes in its page, which is listed as written; what it reads
    // lies in a BO that is listed as read, that nobody has a reference to, and
    // that is closed with the file, which the job's BOs keep open. The job
    // owns the written BOs and the page; whoever calls holds it until it has
    // ended, or leaks it, so no guard and no other job can exist meanwhile; of
    // shared BOs, which it keeps alive, there are no guards at all. All
    // BOs belong to `device`'s file, in whose addresses the programs are.
    unsafe { device.file().submit(&raw) }
}
