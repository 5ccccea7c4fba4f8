// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sync_files report of their fences, and what MERGE keeps.

use std::os::fd::AsFd;

use rocket_uapi::{BufferAccess, ByteLen, Errno, FenceStatus, PAGE_BYTES, SyncFile, sys};
use rustix::fs::SeekFrom;

use crate::RowContext;
use crate::busy::{Busy, Ready, active, patience, quick};
use crate::check::{Must, NotPassed, RowOutcome, ensure, expect, refused};
use crate::request::SET_DEADLINE;

/// The fence of an object that nobody uses.
fn idle(context: &RowContext) -> Result<SyncFile, NotPassed> {
    let page = ByteLen::new(PAGE_BYTES).must("a length")?;
    Ok(context.device.alloc(page)?.fence(BufferAccess::Write)?)
}

pub(super) fn requests(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let fence = idle(context)?;
    let fence = fence.as_fd();
    let known = [sys::SYNC_MERGE, sys::SYNC_FILE_INFO, SET_DEADLINE];
    file.check_requests(fence, known, sys::EXPORT_SYNC_FILE)?;
    for (pad, set) in [(0, Ok(())), (1, Err(Errno::INVAL))] {
        let deadline = file.call_on(fence, SET_DEADLINE, &mut [0_u64, pad]);
        expect(&format!("SYNC_IOC_SET_DEADLINE, pad {pad}"), deadline, set)?;
    }
    let padded = sys::SyncFileInfo {
        pad: 1,
        ..sys::SyncFileInfo::default()
    };
    let padded = file.fence_infos(fence, padded, 1);
    refused("SYNC_IOC_FILE_INFO, pad 1", padded, Errno::INVAL)?;
    refused("lseek", file.seek(fence, SeekFrom::Start(0)), Errno::SPIPE)
}

pub(super) fn names(context: &RowContext) -> RowOutcome {
    let busy = Busy::start(&context.device)?;
    let fence = busy.fence()?;
    let info = fence.info()?;
    let job_fence = &info.fences[0];
    expect("the driver", job_fence.driver.as_str(), "drm_sched")?;
    ensure(
        "the fence's queue is that of a core",
        job_fence.timeline.ends_with(".npu"),
    )?;
    let start = format!("drm_sched-{}", job_fence.timeline);
    ensure(
        "the file's name begins with the driver and the queue",
        info.name.starts_with(&start),
    )?;
    let named = fence.merge("of two", &fence)?.info()?.name;
    expect("a name that MERGE was given", named.as_str(), "of two")?;
    active("the job", &fence)?;
    busy.let_go()?;
    fence.wait(patience())?;
    let info = fence.info()?;
    let job_fence = &info.fences[0];
    expect(
        "the driver after the end",
        job_fence.driver.as_str(),
        "detached-driver",
    )?;
    expect(
        "the queue",
        job_fence.timeline.as_str(),
        "signaled-timeline",
    )?;
    busy.finish()
}

pub(super) fn room(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let other = context.reopen()?;
    let (first, second) = (Ready::new(&context.device)?, Ready::new(&other)?);
    let (first, second) = (first.start(|job| job)?, second.start(|job| job)?);
    let both = first.fence()?.merge("", &second.fence()?)?;
    for (room, told) in [
        (0, Ok((0, 2, vec![]))),
        (1, Err(Errno::INVAL)),
        (2, Ok((0, 2, vec![0, 0]))),
        (9, Ok((0, 2, vec![0, 0]))),
    ] {
        let infos = file.fence_infos(both.as_fd(), sys::SyncFileInfo::default(), room);
        let infos = infos.map(|(info, fences)| (info.status, info.num_fences, fences));
        let active = both.info()?.fences.iter().all(|one| one.ended.is_none());
        ensure("both jobs run", active)?;
        expect(&format!("room for {room}"), infos, told)?;
    }
    let name = both.info()?.name;
    ensure(&name, name.starts_with("dma_fence_array-unbound"))?;
    first.finish()?;
    second.finish()
}

pub(super) fn left_out(context: &RowContext) -> RowOutcome {
    let ended = quick(&context.device, |job| job)?;
    let over = ended.fence()?;
    ended.wait(patience())?;
    let busy = Busy::start(&context.reopen()?)?;
    let going = busy.fence()?;
    let merged = over.merge("", &going)?.info()?;
    active("the job", &going)?;
    expect(
        "MERGE of a fence that is over and one that is not",
        merged,
        going.info()?,
    )?;
    busy.let_go()?;
    going.wait(patience())?;
    let merged = over.merge("", &going)?.info()?;
    expect(
        "fences in MERGE of two that are over",
        merged.fences.len(),
        1,
    )?;
    expect("its status", merged.status(), FenceStatus::Signaled)?;
    let last = going.info()?.fences[0].ended;
    expect("its time is that of the last", merged.fences[0].ended, last)?;
    busy.finish()
}

pub(super) fn latest(context: &RowContext) -> RowOutcome {
    let busy = Busy::start(&context.device)?;
    let (early, later) = (busy.fence()?, quick(&context.device, |job| job)?);
    let late = later.fence()?;
    let merged = late.merge("", &early)?;
    let (merged_info, late_info) = (merged.info()?, late.info()?);
    active("the first job", &early)?;
    expect("MERGE of two fences of one queue", merged_info, late_info)?;
    busy.let_go()?;
    expect("poll", merged.wait(patience()), Ok(FenceStatus::Signaled))?;
    later.wait(patience())?;
    busy.finish()
}
