// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of buffer objects and dma-bufs.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use rocket_uapi::{Errno, MapRequest, PAGE_BYTES};
use rustix::mm::{MapFlags, ProtFlags};

use crate::RowContext;
use crate::check::{Must, RowOutcome, ensure, expect, refused};

/// Pages of the objects here, and their bytes.
const PAGES: usize = 3;
const SIZE: usize = PAGES * PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

pub(super) fn parts(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(SIZE as u32).must("CREATE_BO")?;
    let part = file
        .map_shared(bo.offset, PAGE_BYTES)
        .must("mmap of a part")?;
    part.set(1, 0x5a);
    let read_only = MapRequest::shared(bo.offset, SIZE).read_only();
    let executable = MapRequest {
        prot: ProtFlags::READ | ProtFlags::EXEC,
        ..read_only
    };
    for (what, request) in [("read-only", &read_only), ("executable", &executable)] {
        let map = file.map(request).must(&format!("{what} mmap"))?;
        expect("a byte written elsewhere", map.get(1), 0x5a)?;
    }
    let map = file.map(&read_only).must("read-only mmap")?;
    map.make_writable()
        .must("mprotect of a read-only mapping")?;
    map.set(1, 0xa5);
    expect("a byte written after mprotect", part.get(1), 0xa5)
}

pub(super) fn out_of_range(context: &RowContext) -> RowOutcome {
    let file = context.file();
    // The size is not whole pages, but mmap counts whole pages.
    let bo = file.create(SIZE as u32 - 100).must("CREATE_BO")?;
    let map = |offset, len| file.map_shared(offset, len);
    map(bo.offset, SIZE).must("mmap of all pages")?;
    for (what, offset, len) in [
        ("mmap of a page too much", bo.offset, SIZE + PAGE_BYTES),
        ("mmap of a byte too much", bo.offset, SIZE + 1),
        ("mmap from the second page on", bo.offset + PAGE, PAGE_BYTES),
        ("mmap at offset 0", 0, PAGE_BYTES),
    ] {
        refused(what, map(offset, len), Errno::INVAL)?;
    }
    Ok(())
}

pub(super) fn private(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(SIZE as u32).must("CREATE_BO")?;
    let writable = MapRequest {
        flags: MapFlags::PRIVATE,
        ..MapRequest::shared(bo.offset, SIZE)
    };
    for (what, request) in [("writable", writable), ("read-only", writable.read_only())] {
        let what = format!("private {what} mmap");
        refused(&what, file.map(&request), Errno::INVAL)?;
    }
    Ok(())
}

pub(super) fn other_file(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let other = context.other_file()?;
    let bo = file.create(SIZE as u32).must("CREATE_BO")?;
    let early = other.map_shared(bo.offset, SIZE);
    refused("mmap before the import", early, Errno::ACCESS)?;
    let dma_buf = file.export(bo.handle).must("PRIME export")?;
    other.import(dma_buf.as_fd()).must("PRIME import")?;
    let here = file.map_shared(bo.offset, SIZE).must("mmap")?;
    let there = other
        .map_shared(bo.offset, SIZE)
        .must("mmap after the import")?;
    here.set(7, 42);
    expect("a byte written through the first file", there.get(7), 42)
}

pub(super) fn after_close(context: &RowContext) -> RowOutcome {
    let file = context.file();
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
    )
}

pub(super) fn closed(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
    let _mapping = file.map_shared(bo.offset, PAGE_BYTES).must("mmap")?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    let again = file.map_shared(bo.offset, PAGE_BYTES);
    refused("mmap after GEM_CLOSE", again, Errno::ACCESS)
}

pub(super) fn offsets(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let other = context.other_file()?;
    let mut pages = BTreeSet::new();
    for number in 1..=4 {
        let size = number * PAGE as u32 - 1;
        let bos = [&file, &other].map(|file| file.create(size));
        let [one, two] = bos.map(|bo| bo.must("CREATE_BO"));
        let (one, two) = (one?, two?);
        expect("addresses", one.dma_address, two.dma_address)?;
        for start in [one.offset, two.offset] {
            for page in 0..u64::from(number) {
                let new = pages.insert(start + page * PAGE);
                ensure("each object has a separate offset", new)?;
            }
        }
    }
    let aligned = pages.iter().all(|at| at.is_multiple_of(PAGE));
    ensure("offsets are whole pages", aligned)
}

pub(super) fn dma_buf(context: &RowContext) -> RowOutcome {
    let file = context.file();
    // The size is not whole pages, but mmap counts whole pages.
    let bo = file.create(SIZE as u32 - 100).must("CREATE_BO")?;
    let own = file.map_shared(bo.offset, SIZE).must("mmap")?;
    let dma_buf = file.export(bo.handle).must("export")?;
    for page in 0..PAGES {
        own.set(page * PAGE_BYTES, page as u8 + 1);
    }
    let map = |offset, len, flags| {
        let request = MapRequest {
            flags,
            ..MapRequest::shared(offset, len)
        };
        file.map_dma_buf(dma_buf.as_fd(), &request)
    };
    let whole = map(0, SIZE, MapFlags::SHARED).must("mmap of all of a dma-buf")?;
    for page in 0..PAGES {
        let byte = whole.get(page * PAGE_BYTES);
        expect("a byte of a page", byte, page as u8 + 1)?;
    }
    whole.set(1, 0x5a);
    expect("a byte written through the dma-buf", own.get(1), 0x5a)?;
    let part = map(PAGE, PAGE_BYTES, MapFlags::SHARED);
    let part = part.must("mmap from the second page on")?;
    expect("its first byte, which is the object's", part.get(0), 1)?;
    for (what, offset, len, flags) in [
        ("a page too much", 0, SIZE + PAGE_BYTES, MapFlags::SHARED),
        ("a byte too much", 0, SIZE + 1, MapFlags::SHARED),
        ("beyond the end", SIZE as u64, 1, MapFlags::SHARED),
        (
            "too much from the second page on",
            PAGE,
            SIZE,
            MapFlags::SHARED,
        ),
        ("not at a page", 1, 1, MapFlags::SHARED),
        ("nothing", 0, 0, MapFlags::SHARED),
        ("private", 0, PAGE_BYTES, MapFlags::PRIVATE),
    ] {
        let map = map(offset, len, flags);
        refused(&format!("mmap, {what}"), map, Errno::INVAL)?;
    }
    Ok(())
}
