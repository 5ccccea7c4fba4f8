// SPDX-License-Identifier: MIT OR Apache-2.0
//! GEM names, which are root's.

use rocket_uapi::{Errno, PAGE_BYTES};

use super::create::UNKNOWN_HANDLE;
use crate::RowContext;
use crate::check::{Must, RowOutcome, ensure, expect, nothing};
use crate::raw::File;

pub(super) fn names(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device)?;
    let other = file.reopen()?;
    let bo = file.create(5000).must("CREATE_BO")?;
    let name = match file.flink(bo.handle) {
        Err(Errno::ACCESS) => {
            let root = !context.info.is_model && rustix::process::geteuid().is_root();
            ensure("root may use names", !root)?;
            let opened = other.open_name(1).map(drop);
            expect("GEM_OPEN", opened, Err(Errno::ACCESS))?;
            let unknown = file.flink(UNKNOWN_HANDLE).map(drop);
            expect("GEM_FLINK of no handle", unknown, Err(Errno::ACCESS))?;
            return nothing(file.close(bo.handle)).must("GEM_CLOSE");
        }
        named => named.must("GEM_FLINK")?,
    };
    let unknown = file.flink(UNKNOWN_HANDLE).map(drop);
    expect("GEM_FLINK of no handle", unknown, Err(Errno::NOENT))?;
    expect("GEM_FLINK again", file.flink(bo.handle), Ok(name))?;
    let size = 2 * PAGE_BYTES as u64;
    for handle in [1, 2] {
        let opened = other.open_name(name);
        expect("GEM_OPEN makes a handle", opened, Ok((handle, size)))?;
        expect("its name", other.flink(handle), Ok(name))?;
    }
    let map = file.map_shared(bo.offset, PAGE_BYTES).must("mmap")?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    other.close(1).must("GEM_CLOSE")?;
    let opened = file.open_name(name);
    expect(
        "GEM_OPEN while there is a handle",
        opened,
        Ok((bo.handle, size)),
    )?;
    // In the order that keeps today's kernels alive.
    other.close(2).must("GEM_CLOSE")?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    let opened = file.open_name(name).map(drop);
    expect("GEM_OPEN after the last handle", opened, Err(Errno::NOENT))?;
    drop(map);
    let bo = other.create(1).must("CREATE_BO")?;
    let name = other.flink(bo.handle).must("GEM_FLINK")?;
    drop(other);
    let opened = file.open_name(name).map(drop);
    expect("GEM_OPEN after close", opened, Err(Errno::NOENT))
}
