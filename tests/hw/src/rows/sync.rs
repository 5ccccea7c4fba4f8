// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-bufs and fences: the answers of their files, and what waits for them.

use std::os::fd::{AsFd, OwnedFd};

use rocket_uapi::{
    BufferAccess, Deadline, DmaBuf, Errno, Error, FenceStatus, JobBuilder, PAGE_BYTES, sys,
};
use rustix::fs::SeekFrom;

use crate::RowContext;
use crate::busy::{Busy, Ready, SHORT, active, patience, quick};
use crate::check::{Must, NotPassed, RowOutcome, ensure, expect, refused};
use crate::hold::{Hold, exported_page};
use crate::raw::File;

const READ: u32 = sys::DMA_BUF_SYNC_READ;
const WRITE: u32 = sys::DMA_BUF_SYNC_WRITE;

/// Bits that no flag has.
const NO_FLAG: u32 = 1 << 3;

/// Status of a fence in FILE_INFO.
const ACTIVE: i32 = 0;
const SIGNALED: i32 = 1;
/// -ECANCELED.
const KILLED: i32 = -125;

fn null() -> Result<OwnedFd, NotPassed> {
    Ok(std::fs::File::open("/dev/null").must("/dev/null")?.into())
}

/// The dma-buf and the fence of an object that nobody uses.
fn idle(file: &File) -> Result<(OwnedFd, OwnedFd), NotPassed> {
    let bo = file.create(PAGE_BYTES as u32 + 1).must("CREATE_BO")?;
    let dma_buf = file.export(bo.handle).must("export")?;
    let fence = file.export_fence(dma_buf.as_fd(), READ);
    Ok((dma_buf, fence.must("EXPORT_SYNC_FILE")?))
}

pub(super) fn seek(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let (dma_buf, _) = idle(&file)?;
    let seek = |to| file.seek(dma_buf.as_fd(), to);
    let pages = 2 * PAGE_BYTES as u64;
    expect("lseek to the end", seek(SeekFrom::End(0)), Ok(pages))?;
    expect("lseek to the start", seek(SeekFrom::Start(0)), Ok(0))?;
    for to in [SeekFrom::Current(0), SeekFrom::End(-1), SeekFrom::Start(1)] {
        refused(&format!("lseek {to:?}"), seek(to), Errno::INVAL)?;
    }
    Ok(())
}

pub(super) fn dma_buf_flags(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let (dma_buf, fence) = idle(&file)?;
    for flags in [0, NO_FLAG, READ | NO_FLAG, READ | sys::DMA_BUF_SYNC_END] {
        let export = file.export_fence(dma_buf.as_fd(), flags).map(drop);
        let import = file.import_fence(dma_buf.as_fd(), flags, fence.as_fd());
        for (what, result) in [("EXPORT_SYNC_FILE", export), ("IMPORT_SYNC_FILE", import)] {
            refused(&format!("{what}, flags {flags}"), result, Errno::INVAL)?;
        }
    }
    for flags in [
        0,
        u64::from(sys::DMA_BUF_SYNC_END),
        u64::from(READ | NO_FLAG),
        1 << 32 | 1,
    ] {
        let sync = file.dma_buf_sync(dma_buf.as_fd(), flags);
        let what = format!("DMA_BUF_IOCTL_SYNC, flags {flags}");
        refused(&what, sync, Errno::INVAL)?;
    }
    for flags in [READ, WRITE, READ | WRITE] {
        let import = file.import_fence(dma_buf.as_fd(), flags, fence.as_fd());
        expect("IMPORT_SYNC_FILE", import, Ok(()))?;
        for end in [0, sys::DMA_BUF_SYNC_END] {
            let sync = file.dma_buf_sync(dma_buf.as_fd(), u64::from(flags | end));
            expect("DMA_BUF_IOCTL_SYNC", sync, Ok(()))?;
        }
    }
    let import = file.import_fence(dma_buf.as_fd(), READ, null()?.as_fd());
    refused("IMPORT_SYNC_FILE of no sync_file", import, Errno::INVAL)
}

pub(super) fn sync_file_flags(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let (_, fence) = idle(&file)?;
    let info = |flags| file.fence_info(fence.as_fd(), flags);
    expect("SYNC_IOC_FILE_INFO", info(0), Ok((SIGNALED, 1)))?;
    refused("SYNC_IOC_FILE_INFO, flags 1", info(1), Errno::INVAL)?;
    let merge = |flags| file.merge(fence.as_fd(), fence.as_fd(), flags).map(drop);
    expect("SYNC_IOC_MERGE", merge(0), Ok(()))?;
    refused("SYNC_IOC_MERGE, flags 1", merge(1), Errno::INVAL)?;
    let stranger = file.merge(fence.as_fd(), null()?.as_fd(), 0);
    refused("SYNC_IOC_MERGE with no sync_file", stranger, Errno::NOENT)?;
    let export = file.export_fence(fence.as_fd(), READ);
    refused("EXPORT_SYNC_FILE of a sync_file", export, Errno::NOTTY)
}

pub(super) fn on_outputs(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let busy = Busy::start(&context.device)?;
    let of = |handle| {
        let dma_buf = file.export(handle).must("export")?;
        let fence = file.export_fence(dma_buf.as_fd(), WRITE);
        fence.must("EXPORT_SYNC_FILE")
    };
    let (output, input) = (of(busy.output)?, of(busy.input)?);
    let info = |fence: &OwnedFd| file.fence_info(fence.as_fd(), 0);
    expect("fences of the job's output", info(&output), Ok((ACTIVE, 1)))?;
    expect("fences of the job's input", info(&input), Ok((SIGNALED, 1)))?;
    let output = context.device.adopt_sync_file(output);
    let too_early = output.wait(Deadline::after(SHORT));
    refused("poll for 20 ms", too_early, Error::FenceTimedOut)?;
    active("the job", &output)?;
    let waited = busy.let_go_during(|| output.wait(patience()))?;
    expect("poll", waited, Ok(FenceStatus::Signaled))?;
    let ended = output.info()?.fences.first().and_then(|fence| fence.ended);
    ensure(
        "a signalled fence has its time",
        ended.is_some_and(|at| !at.is_zero()),
    )?;
    busy.finish()
}

pub(super) fn merged(context: &RowContext) -> RowOutcome {
    let other = context.reopen()?;
    let (first, second) = (Ready::new(&context.device)?, Ready::new(&other)?);
    let (first, second) = (first.start(|job| job)?, second.start(|job| job)?);
    let both = first.fence()?.merge("both", &second.fence()?)?;
    active("the job", &first.fence()?)?;
    expect("fences of the merged file", both.info()?.fences.len(), 2)?;
    first.let_go()?;
    let waited = first.fence()?.wait(patience());
    expect("the first job", waited, Ok(FenceStatus::Signaled))?;
    if second.is_held() {
        active("both, after one has ended", &both)?;
    }
    second.let_go()?;
    expect("poll", both.wait(patience()), Ok(FenceStatus::Signaled))?;
    for one in [first.fence()?, second.fence()?] {
        expect("one of them", one.status()?, FenceStatus::Signaled)?;
    }
    first.finish()?;
    second.finish()
}

pub(super) fn cpu_access(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let busy = Busy::start(&context.device)?;
    let fence = busy.fence()?;
    let input = file.export(busy.input).must("export")?;
    let sync = file.dma_buf_sync(input.as_fd(), u64::from(WRITE));
    expect("DMA_BUF_IOCTL_SYNC of the input", sync, Ok(()))?;
    active("the job", &fence)?;
    let output = file.export(busy.output).must("export")?;
    let sync = busy.let_go_during(|| file.dma_buf_sync(output.as_fd(), u64::from(READ)))?;
    expect("DMA_BUF_IOCTL_SYNC of the output", sync, Ok(()))?;
    expect("the job", fence.status()?, FenceStatus::Signaled)?;
    busy.finish()
}

pub(super) fn killed(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let page = bench.page()?.handle;
    let mut job = bench.job(page);
    let hold = Hold::new(&context.device)?;
    job.reads.extend(hold.as_ref().map(Hold::handle));
    bench.submit(job)?;
    let file = &bench.file;
    let dma_buf = file.export(page).must("export")?;
    let fence = || file.writers(dma_buf.as_fd());
    let running = fence()?;
    if let Some(hold) = &hold {
        hold.release()?;
    }
    let waited = running.wait(patience());
    let wanted = Ok(FenceStatus::Failed(Errno::CANCELED));
    expect("its fence", waited, wanted)?;
    let info = file.fence_info(running.as_fd(), 0);
    expect("SYNC_IOC_FILE_INFO", info, Ok((KILLED, 1)))?;
    expect("PREP_BO", file.prep(page, 0), Ok(()))?;
    let later = fence()?.status()?;
    expect("a fence exported later", later, FenceStatus::Signaled)
}

/// How a job uses a shared object.
type Use = fn(JobBuilder, &DmaBuf) -> JobBuilder;

const READER: Use = JobBuilder::reads_shared;
const WRITER: Use = JobBuilder::writes_shared;

/// Runs a job that uses a shared object for a good while, and one of another file
/// that then uses it. Checks whether the second one waits.
fn one_after_another(context: &RowContext, first: Use, second: Use, kind: Order) -> RowOutcome {
    let other = context.reopen()?;
    let shared = exported_page(&context.device)?;
    let imported = other.import(shared.as_fd())?;
    let early = Ready::new(&context.device)?.start(|job| first(job, &shared))?;
    let going = early.fence()?;
    if kind == Order::ByFence {
        shared.add_fence(BufferAccess::Read, &going)?;
    }
    let late = quick(&other, |job| second(job, &imported))?;
    let waiting = late.fence()?;
    if kind == Order::None {
        waiting.wait(patience())?;
        active("the job", &going)?;
    } else {
        let too_early = waiting.wait(Deadline::after(SHORT));
        refused("the second", too_early, Error::FenceTimedOut)?;
        active("the job", &going)?;
        early.let_go_during(|| waiting.wait(patience()))??;
        expect("the first", going.status()?, FenceStatus::Signaled)?;
    }
    late.wait(patience())?;
    early.finish()
}

/// Why the second job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    None,
    ByDriver,
    ByFence,
}

pub(super) fn read_after_write(context: &RowContext) -> RowOutcome {
    one_after_another(context, WRITER, READER, Order::ByDriver)
}

pub(super) fn write_after_write(context: &RowContext) -> RowOutcome {
    one_after_another(context, WRITER, WRITER, Order::ByDriver)
}

pub(super) fn unordered(context: &RowContext) -> RowOutcome {
    one_after_another(context, READER, WRITER, Order::None)
}

pub(super) fn ordered(context: &RowContext) -> RowOutcome {
    one_after_another(context, READER, WRITER, Order::ByFence)
}
