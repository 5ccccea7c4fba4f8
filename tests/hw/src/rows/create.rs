// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creating, naming and closing buffer objects.

use std::fs;

use rocket_uapi::{Errno, PAGE_BYTES};

use crate::RowContext;
use crate::check::{Must, NotPassed, RowOutcome, ensure, expect, refused};
use crate::request::GEM_FLINK;

const GIB: u32 = 1 << 30;

/// Memory that a board must have to spare before a row takes 1 GiB of it, in
/// KiB as /proc/meminfo counts: 1.5 GiB.
const SPARE_FOR_ONE_GIB: u64 = 3 << 19;

/// A handle that no file here has.
pub(super) const UNKNOWN_HANDLE: u32 = 4711;

pub(super) fn nothing(context: &RowContext) -> RowOutcome {
    let file = context.file();
    refused("CREATE_BO of 0 bytes", file.create(0), Errno::NOSPC)
}

pub(super) fn small(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for size in [1, 100, 4096, 4097] {
        let bo = file
            .create(size)
            .must(&format!("CREATE_BO of {size} bytes"))?;
        let len = (size as usize).next_multiple_of(PAGE_BYTES);
        let map = file
            .map_shared(bo.offset, len)
            .must(&format!("mmap of {len} bytes"))?;
        ensure("fresh pages are zero", map.is_zero())?;
        map.set(len - 1, 1);
        expect("the last byte", map.get(len - 1), 1)?;
        drop(map);
        file.close(bo.handle).must("GEM_CLOSE")?;
    }
    Ok(())
}

pub(super) fn one_gib(context: &RowContext) -> RowOutcome {
    if !context.info.is_model && spare_memory_kib() < SPARE_FOR_ONE_GIB {
        return Err(NotPassed::Skip(
            "the machine has less than 1.5 GiB of free memory".to_owned(),
        ));
    }
    let created = context.file().create(GIB).map(drop);
    created.must("CREATE_BO of 1 GiB")
}

/// Afterwards every CREATE_BO of this file fails, if the kernel has the bug
/// `huge-bo`. Without the bug there may be enough memory.
pub(super) fn too_large(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for size in [2 * GIB, u32::MAX] {
        let what = format!("CREATE_BO of {size} bytes");
        match file.create(size) {
            Ok(bo) if !context.info.is_model => {
                file.close(bo.handle).must("GEM_CLOSE")?;
            }
            created => refused(&what, created, Errno::NOMEM)?,
        }
    }
    Ok(())
}

pub(super) fn close(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(1).must("CREATE_BO")?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    for (what, handle) in [
        ("GEM_CLOSE a second time", bo.handle),
        ("GEM_CLOSE of an unknown handle", UNKNOWN_HANDLE),
        ("GEM_CLOSE of 0", 0),
    ] {
        refused(what, file.close(handle), Errno::INVAL)?;
    }
    Ok(())
}

pub(super) fn addresses(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let mut bos = Vec::new();
    let (mut next, mut handle) = (0, 1);
    for size in [4096, 100, 1, 4097, 8192, 64 << 10, 1 << 20, 2 << 20] {
        let what = format!("CREATE_BO of {size} bytes");
        let bo = file.create(size).must(&what)?;
        expect(&what, (bo.handle, bo.dma_address), (handle, next))?;
        ensure("the mmap offset is 4 GiB or more", bo.offset >= 1 << 32)?;
        // The address range has the size, the next one begins at a page.
        next += u64::from(size).next_multiple_of(PAGE_BYTES as u64);
        handle += 1;
        bos.push(bo);
    }
    for handle in [5, 2] {
        file.close(handle).must("GEM_CLOSE")?;
    }
    // An object gets the smallest hole that is large enough, and the lowest handle.
    for (size, place, handle) in [(8192, 4, 2), (100, 1, 5)] {
        let bo = file.create(size).must("CREATE_BO")?;
        let wanted = (handle, bos[place].dma_address);
        expect("CREATE_BO in a hole", (bo.handle, bo.dma_address), wanted)?;
    }
    let other = file.reopen()?.create(1).must("CREATE_BO")?;
    let wanted = (1, 0);
    expect("another file", (other.handle, other.dma_address), wanted)
}

pub(super) fn names(context: &RowContext) -> RowOutcome {
    if !context.info.is_model && rustix::process::geteuid().is_root() {
        return Err(NotPassed::Skip("root may use GEM names".to_owned()));
    }
    let file = context.file();
    let bo = file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
    let flink = file.call(GEM_FLINK, &mut [bo.handle, 0]);
    refused("GEM_FLINK", flink, Errno::ACCESS)
}

/// The available memory of /proc/meminfo.
fn spare_memory_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default()
}
