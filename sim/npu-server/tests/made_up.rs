// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ioctl that this project does not know: each layer between a client and
//! its driver passes it on, or reports that it does not.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{begin, call, done, ioctl, model, open};
use npu_capture::{RecordError, Recorder, RecorderOptions};
use npu_server::{OpenFile, Server};
use rustix::io::Errno;
use test_support::hooked;
use zerocopy::IntoBytes;

/// Number 8 of a driver's requests, with 8 bytes that are copied back.
const MADE_UP: u32 = 0xc008_6448;
/// Number 9, which no driver has.
const UNKNOWN: u32 = 0xc008_6449;

/// A driver with one ioctl that the project does not know. It adds one.
fn driver() -> impl Fn(Box<dyn OpenFile>) -> Box<dyn OpenFile> + Send + Sync {
    hooked(|inner, request, arg, caller| {
        if request == MADE_UP {
            arg[0] += 1;
            return Ok(0);
        }
        // SAFETY: what the caller promises.
        unsafe { inner.ioctl(request, arg, caller) }
    })
}

/// The server and the recorder carry it.
#[test]
fn the_recorder_carries_it_and_tells_that_it_may_have_missed_something() {
    let folder = tempfile::tempdir().unwrap();
    let info = model(Duration::ZERO).open_device().info();
    let path = folder.path().join("it");
    let recorder = Recorder::create(&path, &info, RecorderOptions::default()).unwrap();
    let (recorded, driver) = (recorder.clone(), driver());
    let layers = move |file| -> Box<dyn OpenFile> { Box::new(recorded.of(driver(file))) };
    let server = Server::start_through(model(Duration::ZERO), layers).unwrap();
    let client = open(&server);
    let arg = 41_u64;
    let refused = call(&client, &ioctl(UNKNOWN), arg.as_bytes());
    assert_eq!(refused, Err(Errno::INVAL));
    let channel = begin(&client, ioctl(MADE_UP).as_bytes(), arg.as_bytes());
    assert_eq!(done::<u64>(&channel), 42);
    drop((client, server));
    let request = match recorder.finish() {
        Err(RecordError::Request { request }) => request,
        other => unreachable!("{other:?}"),
    };
    assert_eq!(request, MADE_UP);
}
