// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-bufs: how long they keep their objects, and what their descriptors report.

use std::os::fd::AsFd;

use rocket_uapi::{BufferAccess, Deadline, Errno, Error, PAGE_BYTES, sys};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::RowContext;
use crate::busy::{Busy, SHORT, active, patience, quick};
use crate::check::{Must, RowOutcome, ensure, expect, refused};
use crate::hold::exported_page;
use crate::probe::readiness;

const PAGE: u32 = PAGE_BYTES as u32;

const FOREVER: i64 = i64::MAX;

pub(super) fn keeps(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(PAGE).must("CREATE_BO")?;
    let map = file.map_shared(bo.offset, PAGE_BYTES).must("mmap")?;
    map.set(7, 42);
    drop(map);
    let dma_buf = file.export(bo.handle).must("export")?;
    let copy = dma_buf.try_clone().must("dup")?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    drop(dma_buf);
    let next = file.create(PAGE).must("CREATE_BO")?;
    expect("the handle is free", next.handle, bo.handle)?;
    ensure(
        "the address stays taken",
        next.dma_address != bo.dma_address,
    )?;
    let handle = file.import(copy.as_fd()).must("import")?;
    let map = file.map_shared(bo.offset, PAGE_BYTES).must("mmap")?;
    expect("a byte of the object", map.get(7), 42)?;
    drop(map);
    file.close(handle).must("GEM_CLOSE")?;
    drop(copy);
    let last = file.create(PAGE).must("CREATE_BO")?;
    expect("the address now", last.dma_address, bo.dma_address)
}

pub(super) fn writable(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for first in [0, sys::DRM_RDWR] {
        let bo = file.create(PAGE).must("CREATE_BO")?;
        let mut all = Vec::new();
        for later in [first, sys::DRM_RDWR, 0] {
            let dma_buf = file.export_with(bo.handle, sys::DRM_CLOEXEC | later);
            let dma_buf = dma_buf.must("export")?;
            let flags = fcntl_getfl(&dma_buf).must("F_GETFL")?;
            let access = flags & OFlags::ACCMODE;
            expect("access", access, OFlags::from_bits_retain(first))?;
            all.push(dma_buf);
        }
    }
    Ok(())
}

pub(super) fn requests(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(1).must("CREATE_BO")?;
    let dma_buf = file.export(bo.handle).must("export")?;
    let known = [
        sys::DMA_BUF_SYNC,
        sys::EXPORT_SYNC_FILE,
        sys::IMPORT_SYNC_FILE,
    ];
    file.check_requests(dma_buf.as_fd(), known, sys::SYNC_FILE_INFO)?;
    for (name, named) in [
        (c"", Ok(())),
        (c"0123456789012345678901234567890", Ok(())),
        (c"01234567890123456789012345678901", Err(Errno::INVAL)),
    ] {
        let both = file.set_names(dma_buf.as_fd(), name);
        expect(&format!("SET_NAME of {name:?}"), both, [named; 2])?;
    }
    Ok(())
}

pub(super) fn poll(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let busy = Busy::start(&context.device)?;
    let fence = busy.fence()?;
    let [output, input] = [busy.output, busy.input].map(|bo| file.export(bo));
    let (output, input) = (output.must("export")?, input.must("export")?);
    let read = file.create(1).must("CREATE_BO")?;
    let reader = file.export(read.handle).must("export")?;
    let import = file.import_fence(reader.as_fd(), sys::DMA_BUF_SYNC_READ, fence.as_fd());
    import.must("IMPORT_SYNC_FILE")?;
    for (what, dma_buf, ready) in [
        ("what the job writes", &output, [false, false]),
        ("what the job only reads", &input, [true, true]),
        (
            "an object with an imported fence of a reader",
            &reader,
            [true, false],
        ),
    ] {
        expect(what, readiness(dma_buf), Ok(ready))?;
    }
    active("the job", &fence)?;
    busy.let_go()?;
    fence.wait(patience())?;
    for dma_buf in [&output, &reader] {
        expect("after the job", readiness(dma_buf), Ok([true, true]))?;
    }
    busy.finish()
}

pub(super) fn imported_write(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let shared = exported_page(&context.device)?;
    let handle = shared.handle().into();
    let busy = Busy::start(&context.reopen()?)?;
    let fence = busy.fence()?;
    shared.add_fence(BufferAccess::Read, &fence)?;
    let prep = file.prep(handle, 0);
    expect("PREP_BO with a reader's fence", prep, Ok(()))?;
    let reader = quick(&context.device, |job| job.reads_shared(&shared))?;
    reader.wait(patience())?;
    active("the job", &fence)?;
    shared.add_fence(BufferAccess::Write, &fence)?;
    let prep = file.prep(handle, 0);
    refused("PREP_BO with a writer's fence", prep, Errno::BUSY)?;
    let reader = quick(&context.device, |job| job.reads_shared(&shared))?;
    let too_early = reader.fence()?.wait(Deadline::after(SHORT));
    refused("a reader", too_early, Error::FenceTimedOut)?;
    active("the job", &fence)?;
    let prep = busy.let_go_during(|| file.prep(handle, FOREVER))?;
    expect("PREP_BO", prep, Ok(()))?;
    reader.wait(patience())?;
    busy.finish()
}
