// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that break the protocol harm only themselves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::os::fd::{AsFd, OwnedFd};

use common::{assert_serves, begin, call, channel, connect, ioctl, next, open, server};
use npu_wire::{DATA_BYTES, Frame, FrameKind, Request, RequestKind, send};
use proptest::prelude::*;
use rocket_uapi::sys;
use rustix::io::Errno;
use zerocopy::IntoBytes;

/// Begins a SUBMIT of jobs that the client does not provide.
fn begin_submit(connection: &OwnedFd, jobs: u32) -> OwnedFd {
    let submit = sys::Submit {
        jobs: 4096,
        job_count: jobs,
        job_struct_size: 40,
        ..sys::Submit::default()
    };
    begin(connection, ioctl(sys::SUBMIT).as_bytes(), submit.as_bytes())
}

#[test]
fn calls_in_the_wrong_order_have_an_errno() {
    let server = server();
    let connection = connect(&server);
    let absurd = Request {
        len: u64::MAX,
        offset: u64::MAX,
        flags: u32::MAX,
        ..Request::new(RequestKind::Mmap)
    };
    for (request, arg, expected) in [
        (ioctl(sys::VERSION), &[0; 64][..], Err(Errno::BADF)),
        (Request::new(RequestKind::Mmap), &[], Err(Errno::BADF)),
        (Request::new(RequestKind::FileIoctl), &[], Err(Errno::BADF)),
        (Request::new(RequestKind::Open), &[], Ok(0)),
        (Request::new(RequestKind::Open), &[], Err(Errno::BUSY)),
        (absurd, &[], Err(Errno::INVAL)),
        // An argument that is shorter than the request's number says.
        (ioctl(sys::CREATE_BO), &[0; 3], Err(Errno::FAULT)),
    ] {
        assert_eq!(call(&connection, &request, arg), expected, "{request:?}");
    }
    assert_eq!(server.counts().opens, 1);
}

#[test]
fn another_version_is_told_so() {
    let server = server();
    let other = Request {
        version: npu_wire::VERSION + 1,
        ..Request::new(RequestKind::Open)
    };
    assert_eq!(call(&connect(&server), &other, &[]), Err(Errno::PROTO));
}

#[test]
fn a_silent_client_blocks_no_other() {
    let server = server();
    let silent = open(&server);
    let channels: Vec<_> = (0..20).map(|_| begin_submit(&silent, 50_000_000)).collect();
    for channel in &channels {
        let (frame, kind) = next(channel);
        assert_eq!(kind, Some(FrameKind::Read));
        assert!(frame.len <= DATA_BYTES as u64, "{frame:?}");
    }
    assert_serves(&server);
    // When it is gone, it holds nothing.
    drop((silent, channels));
    assert!(server.wait_for_clients(std::time::Duration::MAX));
}

/// Wrong answers end the call, with `EFAULT` for requested memory.
#[test]
fn wrong_answers_end_the_call() {
    let server = server();
    let connection = open(&server);
    let read = Frame::new(FrameKind::Read);
    let answer = Frame::new(FrameKind::Answer);
    let refusal = Frame::with_status(FrameKind::Answer, i32::MIN);
    let long = vec![0; DATA_BYTES];
    for (frame, data) in [
        (read.as_bytes(), &[][..]),
        (answer.as_bytes(), &[1, 2, 3]),
        (answer.as_bytes(), &long),
        (refusal.as_bytes(), &[0; 40]),
        (&[7; 9], &[]),
    ] {
        let channel = begin_submit(&connection, 1);
        assert_eq!(next(&channel).1, Some(FrameKind::Read));
        send(&channel, [frame, data], &[]).unwrap();
        let (frame, kind) = next(&channel);
        assert_eq!(kind, Some(FrameKind::Done));
        assert_eq!(frame.result(), Err(Errno::FAULT));
    }
    assert_serves(&server);
}

/// An interrupt before a wait is not lost, and one without a wait does nothing.
#[test]
fn interrupts_between_answers_are_kept_apart() {
    let server = server();
    let connection = open(&server);
    let channel = begin_submit(&connection, 1);
    assert_eq!(next(&channel).1, Some(FrameKind::Read));
    for _ in 0..3 {
        let interrupt = Frame::new(FrameKind::Interrupt);
        send(&channel, [interrupt.as_bytes(), &[]], &[]).unwrap();
    }
    // A job without tasks, which the driver drops silently.
    let answer = Frame::new(FrameKind::Answer);
    send(&channel, [answer.as_bytes(), &[0; 40]], &[]).unwrap();
    assert_eq!(next(&channel).0.result(), Ok(0));
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// Bytes of any kind, with descriptors or without, on the connection.
    #[test]
    fn garbage_is_no_end(
        messages in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..300), 0usize..3), 1..8,
        ),
        begins_well in any::<bool>(),
    ) {
        let server = server();
        let connection = open(&server);
        let (own, theirs) = channel();
        for (mut bytes, descriptors) in messages {
            if begins_well {
                let head = Request::new(RequestKind::Ioctl);
                let len = bytes.len().min(10);
                bytes[..len].copy_from_slice(&head.as_bytes()[..len]);
            }
            let descriptors = &[theirs.as_fd(), own.as_fd()][..descriptors];
            send(&connection, [&bytes, &[]], descriptors).unwrap();
        }
        // The connection is still an open file, and there are others.
        prop_assert_eq!(call(&connection, &ioctl(sys::CREATE_BO), &[0; 24]), Err(Errno::NOSPC));
        assert_serves(&server);
    }
}
