// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of processes that share them, or that end with jobs under way.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::wait::WaitStatus;
use rocket_uapi::{Deadline, Errno, FenceStatus, PAGE_BYTES, sys};

use crate::Context;
use crate::bench::Bench;
use crate::busy::PATIENCE;
use crate::check::{Must, Outcome, Reason, ensure, expect, nothing};
use crate::fork::{self, Child};
use crate::hold::Hold;
use crate::raw::File;
use crate::scenario::Scenario;
use crate::submit::{IDLE_WORDS, Job, Task};

/// How a process ends that is killed: by SIGKILL.
const SIGKILL: i32 = 9;

pub(super) fn forked(context: &Context) -> Outcome {
    let file = File::new(&context.device)?;
    let [first, second] = [file.create(1), file.create(1)];
    let (first, second) = (first.must("CREATE_BO")?, second.must("CREATE_BO")?);
    let ended = fork::run(&file, Child::Close(first.handle))?;
    let well = matches!(ended, WaitStatus::Exited(_, 0));
    ensure(&format!("the child ends well: {ended:?}"), well)?;
    let closed = nothing(file.close(first.handle));
    expect(
        "GEM_CLOSE of what the child has closed",
        closed,
        Err(Errno::INVAL),
    )?;
    let next = file.create(1).must("CREATE_BO after the child's end")?;
    expect("its handle", next.handle, first.handle)?;
    for bo in [next, second] {
        file.close(bo.handle).must("GEM_CLOSE")?;
    }
    Ok(())
}

/// A process that is killed with jobs in its queue. What they write is this one's,
/// and they have nothing else, so that nothing is freed after its file.
pub(super) fn killed(context: &Context) -> Outcome {
    let Some(hold) = Hold::new(&context.device)? else {
        return Err(Reason::Skip("no job can be held".to_owned()));
    };
    let gate = hold.gate.as_fd().try_clone_to_owned().must("dup")?;
    let ended = Scenario::DieQueued.spawn(context, Stdio::from(gate))?;
    expect("the signal that ends it", ended.signal(), Some(SIGKILL))?;
    let file = File::new(&context.device)?;
    let fence = file.export_fence(hold.gate.as_fd(), sys::DMA_BUF_SYNC_READ);
    let fence = context
        .device
        .adopt_sync_file(fence.must("EXPORT_SYNC_FILE")?)?;
    expect(
        "the fence of its jobs",
        fence.status()?,
        FenceStatus::Active,
    )?;
    hold.release()?;
    fence.wait(Deadline::after(PATIENCE))?;
    let fences = fence.info()?.fences;
    let dropped = FenceStatus::Failed(Errno::SRCH);
    let what = format!("the last job was dropped: {fences:?}");
    ensure(&what, fences.iter().any(|fence| fence.status == dropped))
}

pub(super) fn closed(context: &Context) -> Outcome {
    let mut owner = Bench::new(File::new(&context.device)?)?;
    let mut fences = Vec::new();
    let mut dma_bufs = Vec::new();
    let visitor = owner.file.reopen()?;
    for _ in 0..2 {
        let page = owner.page()?.handle;
        let dma_buf = owner.file.export(page).must("export")?;
        let import = visitor.import(dma_buf.as_fd()).must("import")?;
        // What is at this address of the visitor is nothing.
        let job = Job {
            tasks: vec![Task {
                regcmd: 0,
                regcmd_count: IDLE_WORDS,
            }],
            writes: vec![import],
            ..Job::default()
        };
        crate::submit::Submission::of(vec![job])
            .submit(&visitor)
            .must("SUBMIT")?;
        let fence = owner
            .file
            .export_fence(dma_buf.as_fd(), sys::DMA_BUF_SYNC_READ);
        let fence = fence.must("EXPORT_SYNC_FILE")?;
        fences.push(context.device.adopt_sync_file(fence)?);
        dma_bufs.push(dma_buf);
    }
    drop(visitor);
    let killed = FenceStatus::Failed(Errno::CANCELED);
    expect(
        "the first job, when its file is closed",
        fences[0].status()?,
        killed,
    )?;
    let waited = fences[1].wait(Deadline::after(PATIENCE));
    expect("the last job, in the end", waited, Ok(killed))?;
    drop((fences, dma_bufs));
    owner.close()
}

pub(super) fn closed_mapped(context: &Context) -> Outcome {
    let file = File::new(&context.device)?;
    let closed = file.reopen()?;
    let bo = closed.create(1).must("CREATE_BO")?;
    let map = closed.map_shared(bo.offset, PAGE_BYTES).must("mmap")?;
    map.set(3, 33);
    drop(closed);
    expect("a byte after the file was closed", map.get(3), 33)?;
    let other = file.create(1).must("CREATE_BO")?;
    ensure("its offset stays taken", other.offset != bo.offset)?;
    drop(map);
    let next = file.create(1).must("CREATE_BO")?;
    expect("the offset after munmap", next.offset, bo.offset)?;
    for bo in [other, next] {
        file.close(bo.handle).must("GEM_CLOSE")?;
    }
    Ok(())
}
