// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that the DRM core handles before the driver.

use rocket_uapi::Errno;

use crate::RowContext;
use crate::check::{Must, RowOutcome, expect, nothing};
use crate::raw::{File, VersionTexts};
use crate::request::{NotDrm, SyncobjCreate, UnknownDriverIoctl};

/// DRM_CAP_PRIME (drm.h).
const CAP_PRIME: u64 = 0x5;
/// DRM_PRIME_CAP_IMPORT and DRM_PRIME_CAP_EXPORT.
const PRIME_BOTH_WAYS: u64 = 3;
const CAP_TIMESTAMP_MONOTONIC: u64 = 0x6;
const CAP_SYNCOBJ: u64 = 0x13;
const CAP_SYNCOBJ_TIMELINE: u64 = 0x14;

pub(super) fn version(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let want = VersionTexts {
        version: (0, 0, 0),
        texts: ["rocket", "rocket DRM", "0"].map(str::to_owned),
    };
    expect("VERSION", file.version(), Ok(want))
}

pub(super) fn capabilities(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    for (name, capability, value) in [
        ("PRIME", CAP_PRIME, PRIME_BOTH_WAYS),
        ("TIMESTAMP_MONOTONIC", CAP_TIMESTAMP_MONOTONIC, 1),
        ("SYNCOBJ", CAP_SYNCOBJ, 0),
        ("SYNCOBJ_TIMELINE", CAP_SYNCOBJ_TIMELINE, 0),
    ] {
        expect(name, file.get_cap(capability), Ok(value))?;
    }
    let created = nothing(file.call(&mut SyncobjCreate([0; 2])));
    expect("SYNCOBJ_CREATE", created, Err(Errno::OPNOTSUPP))
}

pub(super) fn unknown(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let unknown = nothing(file.call(&mut UnknownDriverIoctl([0; 2])));
    expect("driver ioctl 4", unknown, Err(Errno::INVAL))?;
    let other = nothing(file.call(&mut NotDrm([0; 2])));
    expect("letter z", other, Err(Errno::NOTTY))
}

pub(super) fn poll_and_read(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    expect("poll", file.poll(), Ok(0))?;
    expect("read", file.read(), Err(Errno::AGAIN))
}

pub(super) fn argument_size(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    let bo = file.create(1).must("CREATE_BO")?;
    for size in [4, 8, 32] {
        let what = format!("FINI_BO with {size} bytes");
        expect(&what, nothing(file.fini_sized(bo.handle, size)), Ok(()))?;
    }
    expect("NULL", nothing(file.fini_null()), Err(Errno::FAULT))?;
    file.close(bo.handle).must("GEM_CLOSE")?;
    Ok(())
}
