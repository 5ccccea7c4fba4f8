// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submission of checked jobs: the only place where the safe interface promises which
//! memory a program may access.

use super::builder::Job;
use super::witness::Witness;
use crate::bo::Bo;
use crate::calls::submit;
use crate::device::Device;
use crate::dma_buf::DmaBuf;
use crate::error::Error;
use crate::raw_job::RawJob;
use crate::sys::Task;
use crate::units::Handle;

/// Tasks and handles of one job, with its witness.
struct Lists {
    tasks: Vec<Task>,
    reads: Vec<Handle>,
    writes: Vec<Handle>,
}

impl Lists {
    fn new((job, witness): &(Job, Witness)) -> Self {
        // A frozen BO may be listed often; the driver takes each handle once.
        let mut reads: Vec<Handle> = job
            .frozen
            .iter()
            .map(|bo| bo.handle())
            .chain(job.reads.iter().map(Bo::handle))
            .chain(job.shared_reads.iter().map(DmaBuf::handle))
            .collect();
        reads.sort_unstable_by_key(|&handle| u32::from(handle));
        reads.dedup();
        reads.push(witness.operands);
        let shared_writes = job.shared_writes.iter().map(DmaBuf::handle);
        let writes = job.writes.iter().map(Bo::handle).chain(shared_writes);
        Self {
            tasks: job.tasks.iter().copied().chain([witness.task]).collect(),
            reads,
            writes: writes.chain([witness.handle()]).collect(),
        }
    }
}

/// Prepares the jobs' buffers for the NPU, then submits the jobs in one SUBMIT.
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
        job.frozen.iter().try_for_each(|bo| bo.give_back())?;
        job.writes.iter().for_each(Bo::note_writer);
        witness.note_writer();
        let mut after = job.after.iter();
        after.try_for_each(|fence| witness.hold_for(fence))?;
    }
    // SAFETY: the words belong to linked programs in frozen BOs, which nobody changes. From
    // their register values `JobBuilder::build` has checked that each byte that an engine
    // can reach lies in a BO of the job, and each byte that it can write in a BO that the
    // job lists as written. The words lie in the program BO, with the extra word that a
    // fetch in pairs may read.
    //
    // The witness: nobody changes its words either. They lie in its page, and so does all
    // that its program writes; the page is listed as written. Its program reads a BO that
    // is listed as read, has no reference, and is closed with the file, which the job's BOs
    // keep open.
    //
    // Aliasing: the job owns the written BOs and the page. The caller keeps the job until
    // it has ended, or leaks it, so no guard and no other job of these BOs exists
    // meanwhile. It also owns or keeps alive the BOs that are only read; frozen ones may
    // have guards, but nobody changes them. It keeps its shared BOs alive, and this process
    // accesses those by atomics only.
    //
    // Addresses: all BOs belong to `device`'s file, and the programs use the addresses of
    // that file.
    unsafe { submit(device.file(), &raw) }
}
