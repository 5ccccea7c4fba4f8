// SPDX-License-Identifier: MIT OR Apache-2.0
//! PRIME: handles and dma-bufs.

use std::os::fd::{AsFd, AsRawFd};

use rocket_uapi::{Errno, PAGE_BYTES, sys};

use super::create::UNKNOWN_HANDLE;
use crate::RowContext;
use crate::check::{Must, RowOutcome, ensure, expect, refused};
use crate::raw::File;

/// A flag that export does not have: O_NONBLOCK.
const NO_FLAG: u32 = 0o4000;

pub(super) fn bad_arguments(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(1).must("CREATE_BO")?;
    let both = sys::DRM_CLOEXEC | sys::DRM_RDWR;
    for (what, handle, flags, error) in [
        ("export, bad flags", bo.handle, NO_FLAG, Errno::INVAL),
        ("export, both bad", UNKNOWN_HANDLE, NO_FLAG, Errno::INVAL),
        ("export, bad handle", UNKNOWN_HANDLE, both, Errno::NOENT),
        ("export, handle 0", 0, both, Errno::NOENT),
    ] {
        refused(what, file.export_with(handle, flags), error)?;
    }
    for fd in [-1, i32::MAX] {
        let imported = file.import_number(fd);
        refused("import of an invalid descriptor", imported, Errno::BADF)?;
    }
    let null = std::fs::File::open("/dev/null").must("/dev/null")?;
    let imported = file.import_number(null.as_raw_fd());
    refused(
        "import of a file that is no dma-buf",
        imported,
        Errno::INVAL,
    )?;
    if !context.info.is_model
        && let Some(foreign) = file
            .dma_heap(PAGE_BYTES as u64)
            .must("memory of a dma-heap")?
    {
        let imported = file.import(foreign.as_fd());
        refused("import of another driver's dma-buf", imported, Errno::INVAL)?;
    }
    Ok(())
}

pub(super) fn handles(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let other = context.other_file()?;
    file.create(1).must("CREATE_BO")?;
    let bo = file.create(1).must("CREATE_BO")?;
    let dma_buf = file.export(bo.handle).must("export")?;
    let import = |file: &File| file.import(dma_buf.as_fd());
    expect("import by its own file", import(&file), Ok(bo.handle))?;
    let imported = import(&other).must("import by another file")?;
    expect("its handle", imported, 1)?;
    expect("import again", import(&other), Ok(imported))?;
    expect("PREP_BO", other.prep(imported, 0), Ok(()))?;
    expect("FINI_BO", other.fini(imported, 0), Ok(()))?;
    let own = other.create(1).must("CREATE_BO")?;
    expect("an import takes no address", own.dma_address, 0)?;
    other.close(imported).must("GEM_CLOSE of the import")?;
    ensure("the object is still there", import(&file).is_ok())
}
