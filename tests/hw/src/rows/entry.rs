// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that the DRM core handles before the driver.

use rocket_uapi::{Errno, PAGE_BYTES};

use crate::RowContext;
use crate::check::{Must, RowOutcome, expect, refused};
use crate::request::{NOT_DRM, SHORT_CREATE_BO, SYNCOBJ_CREATE, UNKNOWN_DRIVER_IOCTL};

/// DRM_CAP_PRIME (drm.h).
const CAP_PRIME: u64 = 0x5;
/// DRM_PRIME_CAP_IMPORT and DRM_PRIME_CAP_EXPORT.
const PRIME_BOTH_WAYS: u64 = 3;
const CAP_TIMESTAMP_MONOTONIC: u64 = 0x6;
const CAP_SYNCOBJ: u64 = 0x13;
const CAP_SYNCOBJ_TIMELINE: u64 = 0x14;
/// DRM_CAP_DUMB_BUFFER, which only drivers with screens have.
const CAP_DUMB_BUFFER: u64 = 1;

const PAGE: u32 = PAGE_BYTES as u32;

pub(super) fn version(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let (numbers, texts) = rocket_uapi::version(file.raw()).must("VERSION")?;
    let version = [
        numbers.version_major,
        numbers.version_minor,
        numbers.version_patchlevel,
    ];
    expect("the version", version, [0; 3])?;
    let texts = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
    let want = ["rocket", "0", "rocket DRM"].map(str::to_owned);
    expect("name, date and description", texts, want)
}

pub(super) fn capabilities(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for (name, capability, value) in [
        ("PRIME", CAP_PRIME, PRIME_BOTH_WAYS),
        ("TIMESTAMP_MONOTONIC", CAP_TIMESTAMP_MONOTONIC, 1),
        ("SYNCOBJ", CAP_SYNCOBJ, 0),
        ("SYNCOBJ_TIMELINE", CAP_SYNCOBJ_TIMELINE, 0),
    ] {
        expect(name, file.get_cap(capability), Ok(value))?;
    }
    let created = file.call(SYNCOBJ_CREATE, &mut [0_u32; 2]);
    refused("SYNCOBJ_CREATE", created, Errno::OPNOTSUPP)
}

pub(super) fn unknown(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let unknown = file.call(UNKNOWN_DRIVER_IOCTL, &mut [0_u32; 2]);
    refused("driver ioctl 4", unknown, Errno::INVAL)?;
    let other = file.call(NOT_DRM, &mut [0_u32; 2]);
    refused("letter z", other, Errno::NOTTY)
}

pub(super) fn poll_and_read(context: &RowContext) -> RowOutcome {
    let file = context.file();
    expect("poll", file.raw().poll(), Ok(0))?;
    refused("read", file.raw().read(&mut [0; 64]), Errno::AGAIN)
}

pub(super) fn argument_size(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(1).must("CREATE_BO")?;
    for size in [4, 8, 32] {
        let what = format!("FINI_BO with {size} bytes");
        expect(&what, file.fini_sized(bo.handle, size), Ok(()))?;
    }
    refused("NULL", file.fini_null(), Errno::FAULT)
}

pub(super) fn version_room(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for (room, text) in [(4, b"rock...."), (8, b"rocket..")] {
        let mut name = *b"........";
        let lengths = file.version_in([&mut name[..room], &mut [], &mut []]);
        let lengths = lengths.map(|version| (version.name_len, version.desc_len));
        expect("lengths of name and description", lengths, Ok((6, 10)))?;
        expect("the name", &name, text)?;
    }
    Ok(())
}

pub(super) fn unknown_capability(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let value = file.get_cap(CAP_DUMB_BUFFER);
    refused("DUMB_BUFFER", value, Errno::OPNOTSUPP)
}

pub(super) fn argument_back(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let mut arg = [PAGE, 0, 0xaaaa];
    let created = file.call(SHORT_CREATE_BO, &mut arg);
    created.must("CREATE_BO of 8 bytes")?;
    expect("its argument", arg, [PAGE, 1, 0xaaaa])
}
