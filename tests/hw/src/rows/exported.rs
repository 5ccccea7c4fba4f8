// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap of a dma-buf: which pages it shows, and what it refuses.

use std::os::fd::AsFd;

use rocket_uapi::{Errno, PAGE_BYTES};
use rustix::mm::{MapFlags, ProtFlags};

use crate::RowContext;
use crate::check::{Must, RowOutcome, expect};
use crate::raw::File;

/// Pages of the object here, and bytes that are asked for.
const PAGES: usize = 3;
const SIZE: usize = PAGES * PAGE_BYTES;

pub(super) fn mmap(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    // The size is not whole pages, but mmap counts whole pages.
    let bo = file.create(SIZE as u32 - 100).must("CREATE_BO")?;
    let own = file.map_shared(bo.offset, SIZE).must("mmap")?;
    let dma_buf = file.export(bo.handle).must("export")?;
    for page in 0..PAGES {
        own.set(page * PAGE_BYTES, page as u8 + 1);
    }
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let map = |offset, len, flags| file.map_dma_buf(dma_buf.as_fd(), offset, len, both, flags);
    let whole = map(0, SIZE, MapFlags::SHARED).must("mmap of all of a dma-buf")?;
    for page in 0..PAGES {
        let byte = whole.get(page * PAGE_BYTES);
        expect("a byte of a page", byte, page as u8 + 1)?;
    }
    whole.set(1, 0x5a);
    expect("a byte written through the dma-buf", own.get(1), 0x5a)?;
    let part = map(PAGE_BYTES as u64, PAGE_BYTES, MapFlags::SHARED);
    let part = part.must("mmap from the second page on")?;
    expect("its first byte, which is the object's", part.get(0), 1)?;
    for (what, offset, len, flags) in [
        ("a page too much", 0, SIZE + PAGE_BYTES, MapFlags::SHARED),
        ("a byte too much", 0, SIZE + 1, MapFlags::SHARED),
        ("beyond the end", SIZE as u64, 1, MapFlags::SHARED),
        (
            "too much from the second page on",
            PAGE_BYTES as u64,
            SIZE,
            MapFlags::SHARED,
        ),
        ("not at a page", 1, 1, MapFlags::SHARED),
        ("nothing", 0, 0, MapFlags::SHARED),
        ("private", 0, PAGE_BYTES, MapFlags::PRIVATE),
    ] {
        let refused = map(offset, len, flags).map(drop);
        expect(&format!("mmap, {what}"), refused, Err(Errno::INVAL))?;
    }
    // In the order that keeps today's kernels alive.
    drop((own, whole, part, dma_buf));
    file.close(bo.handle).must("GEM_CLOSE")?;
    Ok(())
}
