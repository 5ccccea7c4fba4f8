// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctl entry itself: numbers, sizes, strings.

use npu_model::driver::{Arena, UserMemory};
use npu_model::event::Event;
use rustix::io::Errno;

use crate::client::*;

#[test]
fn version_is_zero_and_named_rocket() {
    let bench = Bench::new(1);
    let client = bench.client();
    let arena = Arena::new();
    let name = arena.push(&[b'.'; 16]);
    let desc = arena.push(&[b'.'; 4]);
    let mut arg = [0xff; 64];
    arg[16..24].copy_from_slice(&16u64.to_le_bytes());
    arg[24..32].copy_from_slice(&name.to_le_bytes());
    arg[32..48].fill(0);
    arg[48..56].copy_from_slice(&4u64.to_le_bytes());
    arg[56..64].copy_from_slice(&desc.to_le_bytes());
    assert_eq!(client.raw_with(VERSION, &mut arg, &arena), Ok(0));
    assert_eq!(arg[0..12], [0; 12], "0.0.0");
    let len = |at: usize| u64::from_le_bytes(arg[at..at + 8].try_into().unwrap());
    assert_eq!((len(16), len(32), len(48)), (6, 1, 10));
    let mut text = [0; 7];
    arena.read(name, &mut text).unwrap();
    assert_eq!(&text, b"rocket.", "no terminator is written");
    let mut text = [0; 4];
    arena.read(desc, &mut text).unwrap();
    assert_eq!(&text, b"rock", "as much as fits");

    arg[24..32].copy_from_slice(&8u64.to_le_bytes());
    assert_eq!(
        client.raw_with(VERSION, &mut arg, &arena),
        Err(Errno::FAULT)
    );
}

#[test]
fn capabilities() {
    let bench = Bench::new(1);
    let client = bench.client();
    let get = |cap: u64| {
        let mut arg = [0; 16];
        arg[0..8].copy_from_slice(&cap.to_le_bytes());
        arg[8..16].fill(0xee);
        client
            .raw(GET_CAP, &mut arg)
            .map(|_| u64::from_le_bytes(arg[8..16].try_into().unwrap()))
    };
    assert_eq!(get(0x5), Ok(3), "PRIME import and export");
    assert_eq!(get(0x6), Ok(1), "TIMESTAMP_MONOTONIC");
    assert_eq!(get(0x13), Ok(0), "SYNCOBJ");
    assert_eq!(get(0x14), Ok(0), "SYNCOBJ_TIMELINE");
    assert_eq!(get(0x1), Err(Errno::OPNOTSUPP), "DUMB_BUFFER");
}

#[test]
fn unknown_requests() {
    let bench = Bench::new(1);
    let client = bench.client();
    let mut arg = [0; 64];
    assert_eq!(
        client.raw(0xc018_6444, &mut arg),
        Err(Errno::INVAL),
        "driver ioctl nr 4"
    );
    assert_eq!(client.raw(0xc018_649f, &mut arg), Err(Errno::INVAL));
    assert_eq!(client.raw(0x5401, &mut arg), Err(Errno::NOTTY), "TCGETS");
    assert_eq!(
        client.raw(0xc008_64bf, &mut arg),
        Err(Errno::OPNOTSUPP),
        "SYNCOBJ_CREATE"
    );
    assert_eq!(
        client.raw(GEM_FLINK, &mut arg),
        Err(Errno::ACCESS),
        "GEM_FLINK"
    );
    assert_eq!(bench.driver.events(), []);
    assert_eq!(
        client.raw(GET_UNIQUE, &mut arg),
        Err(Errno::INVAL),
        "GET_UNIQUE"
    );
    assert!(matches!(
        bench.driver.events()[..],
        [Event::KernelBug { .. }]
    ));
}

#[test]
fn arguments_are_extended_cut_or_refused() {
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(1).unwrap();
    let handle = bo.handle.to_le_bytes();
    let with_size = |size: u32| FINI_BO & !0x3fff_0000 | size << 16;

    assert_eq!(
        client.raw(with_size(4), &mut handle.clone()),
        Ok(0),
        "zero-extended"
    );
    let mut long = [0xff; 32];
    long[0..4].copy_from_slice(&handle);
    long[4..8].fill(0);
    assert_eq!(
        client.raw(with_size(32), &mut long),
        Ok(0),
        "the tail is ignored"
    );
    assert_eq!(
        client.raw(FINI_BO, &mut []),
        Err(Errno::FAULT),
        "a null pointer"
    );
    assert_eq!(
        client.raw(CREATE_BO, &mut [0; 23]),
        Err(Errno::FAULT),
        "memory ends early"
    );
    assert_eq!(
        client.raw(with_size(0), &mut []),
        Err(Errno::NOENT),
        "handle 0"
    );

    // Only the client's size comes back, and the tail stays as it was.
    let create = |size: u32| CREATE_BO & !0x3fff_0000 | size << 16;
    let mut arg = [0xaa; 12];
    arg[0..4].copy_from_slice(&4096u32.to_le_bytes());
    assert_eq!(client.raw(create(8), &mut arg), Ok(0));
    assert_eq!(arg[4..], [2, 0, 0, 0, 0xaa, 0xaa, 0xaa, 0xaa]);
}

#[test]
fn the_file_has_no_events() {
    let bench = Bench::new(1);
    let client = bench.client();
    assert!(client.0.poll().is_empty());
    assert_eq!(client.0.read_nonblocking(&mut [0; 64]), Err(Errno::AGAIN));
}
