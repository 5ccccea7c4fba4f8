// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of buffer objects.

use std::os::fd::AsFd;

use rocket_uapi::{Errno, PAGE_BYTES};
use rustix::mm::{MapFlags, ProtFlags};

use crate::RowContext;
use crate::check::{Must, RowOutcome, ensure, expect};
use crate::raw::File;

const PAGES: usize = 3;

const SIZE: usize = PAGES * PAGE_BYTES;

pub(super) fn parts(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let bo = file.create(SIZE as u32).must("CREATE_BO")?;
    let part = file
        .map_shared(bo.offset, PAGE_BYTES)
        .must("mmap of a part")?;
    part.set(1, 0x5a);
    let execute = ProtFlags::READ | ProtFlags::EXEC;
    for (what, prot) in [("read-only", ProtFlags::READ), ("executable", execute)] {
        let map = file
            .map(bo.offset, SIZE, prot, MapFlags::SHARED)
            .must(&format!("{what} mmap"))?;
        expect("a byte written elsewhere", map.get(1), 0x5a)?;
    }
    let map = file
        .map(bo.offset, SIZE, ProtFlags::READ, MapFlags::SHARED)
        .must("read-only mmap")?;
    map.make_writable()
        .must("mprotect of a read-only mapping")?;
    map.set(1, 0xa5);
    expect("a byte written after mprotect", part.get(1), 0xa5)?;
    drop((map, part));
    file.close(bo.handle).must("GEM_CLOSE")?;
    Ok(())
}

pub(super) fn out_of_range(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    // The size is not whole pages, but mmap counts whole pages.
    let bo = file.create(SIZE as u32 - 100).must("CREATE_BO")?;
    let map = |offset, len| file.map_shared(offset, len).map(drop);
    expect("mmap of all pages", map(bo.offset, SIZE), Ok(()))?;
    for (what, offset, len) in [
        ("mmap of a page too much", bo.offset, SIZE + PAGE_BYTES),
        ("mmap of a byte too much", bo.offset, SIZE + 1),
        (
            "mmap from the second page on",
            bo.offset + PAGE_BYTES as u64,
            PAGE_BYTES,
        ),
        ("mmap at offset 0", 0, PAGE_BYTES),
    ] {
        expect(what, map(offset, len), Err(Errno::INVAL))?;
    }
    file.close(bo.handle).must("GEM_CLOSE")?;
    Ok(())
}

pub(super) fn private(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let bo = file.create(SIZE as u32).must("CREATE_BO")?;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    for (what, prot) in [("writable", both), ("read-only", ProtFlags::READ)] {
        let map = file.map(bo.offset, SIZE, prot, MapFlags::PRIVATE);
        let what = format!("private {what} mmap");
        expect(&what, map.map(drop), Err(Errno::INVAL))?;
    }
    file.close(bo.handle).must("GEM_CLOSE")?;
    Ok(())
}

pub(super) fn other_file(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let other = file.reopen()?;
    let bo = file.create(SIZE as u32).must("CREATE_BO")?;
    let early = other.map_shared(bo.offset, SIZE).map(drop);
    expect("mmap before the import", early, Err(Errno::ACCESS))?;
    let dma_buf = file.export(bo.handle).must("PRIME export")?;
    let imported = other.import(dma_buf.as_fd()).must("PRIME import")?;
    let here = file.map_shared(bo.offset, SIZE).must("mmap")?;
    let there = other
        .map_shared(bo.offset, SIZE)
        .must("mmap after the import")?;
    here.set(7, 42);
    expect("a byte written through the first file", there.get(7), 42)?;
    // In the order that keeps today's kernels alive.
    drop((here, there));
    other.close(imported).must("GEM_CLOSE of the import")?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    drop(dma_buf);
    Ok(())
}

pub(super) fn after_close(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let closed = file.create(SIZE as u32).must("CREATE_BO")?;
    let map = file.map_shared(closed.offset, SIZE).must("mmap")?;
    map.set(5, 99);
    file.close(closed.handle).must("GEM_CLOSE")?;
    expect("a byte after GEM_CLOSE", map.get(5), 99)?;
    let second = file.create(SIZE as u32).must("CREATE_BO")?;
    ensure(
        "the address stays taken while it is mapped",
        second.dma_address != closed.dma_address,
    )?;
    ensure(
        "the offset stays taken while it is mapped",
        second.offset != closed.offset,
    )?;
    drop(map);
    let third = file.create(SIZE as u32).must("CREATE_BO")?;
    expect(
        "the address after munmap",
        third.dma_address,
        closed.dma_address,
    )?;
    for bo in [second, third] {
        file.close(bo.handle).must("GEM_CLOSE")?;
    }
    Ok(())
}
