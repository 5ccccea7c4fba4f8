// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies to calls of the DRM core, and where objects are mapped.

use std::collections::BTreeSet;

use rocket_uapi::{Errno, PAGE_BYTES};

use crate::RowContext;
use crate::check::{Must, RowOutcome, ensure, expect};
use crate::raw::File;

/// DRM_CAP_DUMB_BUFFER (drm.h), which only drivers with screens have.
const CAP_DUMB_BUFFER: u64 = 1;

const PAGE: u32 = PAGE_BYTES as u32;

pub(super) fn version_room(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    for (room, text) in [(4, "rock...."), (8, "rocket..")] {
        let mut name = *b"........";
        let lengths = file.version_in([&mut name[..room], &mut [], &mut []]);
        let lengths = lengths.map(|version| (version.name_len, version.desc_len));
        expect("lengths of name and description", lengths, Ok((6, 10)))?;
        expect(
            "the name",
            &name,
            text.as_bytes().try_into().must("8 bytes")?,
        )?;
    }
    Ok(())
}

pub(super) fn unknown_capability(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let value = file.get_cap(CAP_DUMB_BUFFER);
    expect("DUMB_BUFFER", value, Err(Errno::OPNOTSUPP))
}

pub(super) fn argument_back(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let created = file.create_short(PAGE, 0xaaaa);
    expect("CREATE_BO of 8 bytes", created, Ok([PAGE, 1, 0xaaaa]))?;
    file.close(1).must("GEM_CLOSE")?;
    Ok(())
}

pub(super) fn offsets(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let other = file.reopen()?;
    let mut pages = BTreeSet::new();
    for number in 1..=4 {
        let size = number * PAGE - 1;
        let bos = [&file, &other].map(|file| file.create(size));
        let [one, two] = bos.map(|bo| bo.must("CREATE_BO"));
        let (one, two) = (one?, two?);
        expect("addresses", one.dma_address, two.dma_address)?;
        for start in [one.offset, two.offset] {
            for page in 0..u64::from(number) {
                let new = pages.insert(start + page * u64::from(PAGE));
                ensure("each object has a separate offset", new)?;
            }
        }
    }
    let aligned = pages.iter().all(|at| at.is_multiple_of(u64::from(PAGE)));
    ensure("offsets are whole pages", aligned)?;
    for handle in 1..=4 {
        file.close(handle).must("GEM_CLOSE")?;
        other.close(handle).must("GEM_CLOSE")?;
    }
    Ok(())
}

pub(super) fn mmap_closed(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let bo = file.create(PAGE).must("CREATE_BO")?;
    let mapping = file.map_shared(bo.offset, PAGE_BYTES).must("mmap")?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    let again = file.map_shared(bo.offset, PAGE_BYTES).map(drop);
    expect("mmap after GEM_CLOSE", again, Err(Errno::ACCESS))?;
    drop(mapping);
    Ok(())
}
