// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs into the driver's hands: the one place where the safe interface
//! promises what a program may touch.

use super::builder::Job;
use crate::backend::RawJob;
use crate::bo::{Bo, FrozenBo};
use crate::device::Device;
use crate::error::Error;

/// SUBMIT.
pub(super) fn hand_over(device: &Device, jobs: &[Job]) -> Result<(), Error> {
    let handles: Vec<_> = jobs
        .iter()
        .map(|job| (job.read_handles(), job.write_handles()))
        .collect();
    let raw: Vec<_> = jobs
        .iter()
        .zip(&handles)
        .map(|(job, (reads, writes))| RawJob {
            tasks: &job.tasks,
            reads,
            writes,
        })
        .collect();
    for job in jobs {
        job.writes
            .iter()
            .chain(&job.reads)
            .chain(&job.scratch)
            .try_for_each(Bo::give_back)?;
        job.frozen.iter().try_for_each(FrozenBo::give_back)?;
        let written = job.writes.iter().chain(&job.scratch);
        written.for_each(Bo::note_writer);
        // A job waits for all fences on what it writes. As a reader's, the
        // fence is not among those that PREP_BO waits for, nor among those
        // that prove that the driver accepted the job.
        if let Some(bo) = job.writes.first() {
            job.after
                .iter()
                .try_for_each(|fence| bo.add_reader(fence))?;
        }
    }
    // SAFETY: the words are those of linked programs in frozen BOs, which
    // nobody changes. `JobBuilder::build` checked that each byte that an
    // engine can reach by their register values lies in a BO of the job, and a
    // written one in a BO that it lists as written (the words themselves, with
    // the one that a fetch in pairs may read behind them, lie in the program
    // BO). The job owns the written BOs; whoever calls holds it until it has
    // ended, or leaks it, so no guard and no other job can exist meanwhile; of
    // shared BOs, which it keeps alive, there are no guards at all. All
    // BOs belong to `device`'s file, in whose addresses the programs are.
    unsafe { device.backend().submit(&raw) }
}
