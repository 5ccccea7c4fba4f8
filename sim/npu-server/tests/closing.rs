// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing a file: what it waits for, and when it does not wait.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{assert_serves, begin, hang, model, next, open, request, serve, server};
use npu_capture::{Recorder, RecorderOptions};
use npu_model::driver::JobCounts;
use npu_server::Server;
use npu_wire::{Frame, FrameKind, Request, RequestKind, receive, send};
use rocket_uapi::sys;
use rustix::io::Errno;
use rustix::mm::MapFlags;
use zerocopy::{FromZeros, IntoBytes};

/// Closes a descriptor as the library does. Returns the channel on which the
/// call ends.
fn close(client: OwnedFd, request: &Request) -> OwnedFd {
    let channel = begin(&client, request.as_bytes(), &[]);
    drop(client);
    let closed = Frame::new(FrameKind::Answer);
    send(&channel, [closed.as_bytes(), &[]], &[]).unwrap();
    channel
}

/// Waits for the end of a call.
#[track_caller]
fn ends(channel: &OwnedFd) {
    let (frame, kind) = next(channel);
    assert_eq!((kind, frame.result()), (Some(FrameKind::Done), Ok(0)));
}

/// Waits until no client has a file, however long its release takes.
fn wait_for_clients(server: &Server) {
    assert!(server.wait_for_clients(Duration::MAX));
}

#[test]
fn closing_waits_for_the_queue() {
    let model = model(Duration::from_millis(20));
    let server = serve(&model);
    let client = open(&server);
    for _ in 0..4 {
        hang(&client);
    }
    ends(&close(client, &request(RequestKind::Close)));
    // All but the one in flight.
    let killed = model.jobs().killed;
    assert!(killed >= 3, "{killed}");
    assert_eq!(server.counts().died, 0);
}

/// No job ever ends here: a wait for one would not end.
#[test]
fn only_the_last_close_waits() {
    let server = server();
    let client = open(&server);
    let copy = client.try_clone().unwrap();
    hang(&client);
    hang(&client);
    ends(&close(copy, &request(RequestKind::Close)));
    // The file is still there.
    hang(&client);
    // A connection without an open file has nothing to wait for.
    ends(&close(
        common::connect(&server),
        &request(RequestKind::Close),
    ));
}

#[test]
fn a_client_killed_in_close_leaves_no_queue() {
    let model = model(Duration::MAX);
    let server = serve(&model);
    let client = open(&server);
    hang(&client);
    hang(&client);
    drop(close(client, &request(RequestKind::Close)));
    wait_for_clients(&server);
    let jobs = model.jobs();
    assert_eq!((jobs.lost, jobs.unfinished), (1, 1), "{jobs:?}");
    assert_eq!(server.counts().died, 1);
}

/// A mapping keeps the file. close returns, and the file blocks nothing else
/// while the process lives.
#[test]
fn a_mapping_keeps_the_file() {
    let server = server();
    let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let process_request = |ask| Request {
        process: process.id(),
        ..Request::new(ask)
    };
    let client = open(&server);
    let bo = hang(&client);
    hang(&client);
    let map = Request {
        len: 4096,
        offset: bo.offset,
        flags: MapFlags::SHARED.bits(),
        ..process_request(RequestKind::Mmap)
    };
    let channel = begin(&client, map.as_bytes(), &[]);
    // A frame with the file comes before the result.
    let mut frame = [0; size_of::<Frame>()];
    let [mapped, _] = receive(&channel, &mut frame).unwrap().descriptors;
    assert_eq!(next(&channel).1, Some(FrameKind::Done));
    ends(&close(client, &process_request(RequestKind::Close)));
    assert_serves(&server);
    assert!(mapped.is_some());
    drop(mapped);
    assert_serves(&server);
    process.kill().unwrap();
    process.wait().unwrap();
    wait_for_clients(&server);
    assert_eq!(server.counts().died, 1);
}

/// If a client dies while its job is read, the job is neither accepted nor
/// reported as dropped for a mistake.
#[test]
fn a_client_that_dies_in_submit_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    for recorded in [false, true] {
        let model = model(Duration::MAX);
        let server = if recorded {
            let options = RecorderOptions::default();
            let info = model.open_device().info();
            let recorder = Recorder::create(&folder.path().join("it"), &info, options).unwrap();
            Server::start_through(model.clone(), move |file| Box::new(recorder.of(file)))
        } else {
            Server::start(model.clone())
        };
        let server = server.unwrap();
        let client = open(&server);
        let submit = sys::Submit {
            jobs: 4096,
            job_count: 1,
            job_struct_size: size_of::<sys::Job>() as u32,
            reserved: 0,
        };
        // The process does not exist.
        let request = Request {
            number: sys::SUBMIT,
            process: u32::MAX,
            ..Request::new(RequestKind::Ioctl)
        };
        let channel = begin(&client, request.as_bytes(), submit.as_bytes());
        assert_eq!(next(&channel).1, Some(FrameKind::Read));
        let job = sys::Job {
            tasks: 8192,
            task_count: 1,
            task_struct_size: size_of::<sys::Task>() as u32,
            ..sys::Job::new_zeroed()
        };
        let answer = Frame::new(FrameKind::Answer);
        send(&channel, [answer.as_bytes(), job.as_bytes()], &[]).unwrap();
        assert_eq!(next(&channel).1, Some(FrameKind::Read));
        drop((client, channel));
        wait_for_clients(&server);
        assert_eq!(model.jobs(), JobCounts::default());
        assert_eq!(model.event_tally().jobs_dropped, 0, "{:?}", model.events());
        assert_eq!(server.counts().died, 1);
    }
}

/// A call of another thread keeps the file, as in the kernel.
#[test]
fn a_call_under_way_keeps_the_file() {
    let server = server();
    let client = open(&server);
    let bo = hang(&client);
    hang(&client);
    let prep = sys::PrepBo {
        handle: bo.handle,
        reserved: 0,
        timeout_ns: i64::MAX,
    };
    let number = common::ioctl(sys::PREP_BO);
    let waiting = begin(&client, number.as_bytes(), prep.as_bytes());
    ends(&close(client, &request(RequestKind::Close)));
    // The call ends when it is interrupted.
    let interrupt = Frame::new(FrameKind::Interrupt);
    send(waiting.as_fd(), [interrupt.as_bytes(), &[]], &[]).unwrap();
    let result = std::iter::repeat_with(|| next(&waiting))
        // The server hangs up with that unread, so a reset comes before the
        // result.
        .find(|(_, kind)| kind.is_some());
    assert_eq!(result.unwrap().0.result(), Err(Errno::INTR));
}
