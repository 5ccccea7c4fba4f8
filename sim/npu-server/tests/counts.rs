// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server's counts of its clients' calls.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::OwnedFd;

use common::{call, create, ioctl, open, server};
use rocket_uapi::sys;
use rustix::io::Errno;
use zerocopy::IntoBytes;

fn prep(client: &OwnedFd, handle: u32, reserved: u32) -> Result<i32, Errno> {
    let arg = sys::PrepBo {
        handle,
        reserved,
        timeout_ns: 0,
    };
    call(client, &ioctl(sys::PREP_BO), arg.as_bytes())
}

fn fini(client: &OwnedFd, handle: u32) -> Result<i32, Errno> {
    let arg = sys::FiniBo {
        handle,
        reserved: 0,
    };
    call(client, &ioctl(sys::FINI_BO), arg.as_bytes())
}

#[test]
fn cache_maintenance_is_counted() {
    let server = server();
    let client = open(&server);
    for size in [100, 8193] {
        create(&client, size);
    }
    assert_eq!(prep(&client, 1, 0), Ok(0));
    assert_eq!(prep(&client, 2, 0), Ok(0));
    assert_eq!(prep(&client, 2, 1), Err(Errno::INVAL));
    assert_eq!(prep(&client, 3, 0), Err(Errno::NOENT));
    assert_eq!(fini(&client, 2), Ok(0));
    assert_eq!(fini(&client, 3), Err(Errno::NOENT));
    // A FINI_BO whose structure has only the handle.
    let short = ioctl(sys::FINI_BO & 0xc000_ffff | 4 << 16);
    assert_eq!(call(&client, &short, 1_u32.as_bytes()), Ok(0));
    let counts = server.counts();
    // Whole pages.
    assert_eq!((counts.preps, counts.prep_bytes), (2, 4096 + 3 * 4096));
    assert_eq!((counts.finis, counts.fini_bytes), (2, 3 * 4096 + 4096));
}

/// The driver does it whatever the result of the wait.
#[test]
fn a_wait_in_vain_goes_through_the_caches_too() {
    let server = server();
    let client = open(&server);
    let handle = common::hang(&client).handle;
    assert_eq!(prep(&client, handle, 0), Err(Errno::BUSY));
    let counts = server.counts();
    assert_eq!((counts.preps, counts.prep_bytes), (1, 4096));
}
