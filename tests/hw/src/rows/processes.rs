// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that processes share, and processes that end with jobs under way.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use rocket_uapi::{Errno, FenceStatus, PAGE_BYTES};

use crate::RowContext;
use crate::busy::{active, patience};
use crate::check::{Must, RowOutcome, ensure, expect, refused};
use crate::fork::{self, Child};
use crate::hold::Hold;
use crate::raw::File;
use crate::scenario::Scenario;
use crate::submit::{IDLE_AT_ZERO, JobArgs, SubmitArgs};

/// Maximum number of objects until one has an offset that was used before.
const HOLES: usize = 16;

pub(super) fn forked(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let first = file.create(1).must("CREATE_BO")?;
    file.create(1).must("CREATE_BO")?;
    let ended = fork::run(&file, Child::Close(first.handle))?;
    let well = matches!(ended, WaitStatus::Exited(_, 0));
    ensure(&format!("the child ends without an error: {ended:?}"), well)?;
    let closed = file.close(first.handle);
    refused(
        "GEM_CLOSE of a handle that the child has closed",
        closed,
        Errno::INVAL,
    )?;
    let next = file.create(1).must("CREATE_BO after the child's end")?;
    expect("its handle", next.handle, first.handle)
}

/// Kills a process with jobs in its queue. They use only an object of this process,
/// so nothing is freed after its file.
pub(super) fn killed(context: &RowContext) -> RowOutcome {
    let hold = Hold::required(&context.device)?;
    let gate = hold.gate.as_fd().try_clone_to_owned().must("dup")?;
    let ended = Scenario::DieQueued.spawn(context, Stdio::from(gate))?;
    expect(
        "the signal that ends the process",
        ended.signal(),
        Some(Signal::SIGKILL as i32),
    )?;
    let fence = File::new(&context.device).writers(hold.gate.as_fd())?;
    active("the fence of its jobs", &fence)?;
    hold.release()?;
    fence.wait(patience())?;
    let fences = fence.info()?.fences;
    let dropped = FenceStatus::Failed(Errno::SRCH);
    let what = format!("the last job was dropped: {fences:?}");
    ensure(&what, fences.iter().any(|fence| fence.status == dropped))
}

/// Closes a file with jobs in its queue. Again they use only objects of another file.
pub(super) fn closed(context: &RowContext) -> RowOutcome {
    let hold = Hold::required(&context.device)?;
    let owner = context.bench()?;
    let visitor = owner.file.reopen()?;
    let gate = visitor.import(hold.gate.as_fd()).must("import")?;
    let (mut fences, mut dma_bufs) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let page = owner.page()?.handle;
        let dma_buf = owner.file.export(page).must("export")?;
        let import = visitor.import(dma_buf.as_fd()).must("import")?;
        // The visitor has nothing at the address of the task.
        let mut job = JobArgs::of(IDLE_AT_ZERO, import);
        job.reads.push(gate);
        let submission = SubmitArgs::of(vec![job]);
        submission.submit(&visitor).must("SUBMIT")?;
        fences.push(owner.file.writers(dma_buf.as_fd())?);
        dma_bufs.push(dma_buf);
    }
    hold.release()?;
    drop(visitor);
    let killed = FenceStatus::Failed(Errno::CANCELED);
    let first = fences[0].status()?;
    expect("the first job, when its file is closed", first, killed)?;
    let last = fences[1].wait(patience());
    expect("the last job, after its end", last, Ok(killed))
}

pub(super) fn closed_mapped(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let closed = bench.file.reopen()?;
    let bo = closed.create(1).must("CREATE_BO")?;
    let map = closed.map_shared(bo.offset, PAGE_BYTES).must("mmap")?;
    map.set(3, 33);
    drop(closed);
    expect("a byte after the file was closed", map.get(3), 33)?;
    let other = bench.page()?;
    ensure("its offset stays taken", other.offset != bo.offset)?;
    drop(map);
    // Other files may have left holes too.
    let mut given = false;
    for _ in 0..HOLES {
        given |= bench.page()?.offset == bo.offset;
    }
    ensure("its offset is reused after munmap", given)
}
