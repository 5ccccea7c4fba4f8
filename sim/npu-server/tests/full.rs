// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server without a free descriptor. It has its own process, because it
//! changes the limit.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::File;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{next, open, server};
use npu_wire::{FrameKind, new_socket};
use rustix::io::Errno;
use rustix::net::SocketFlags;

const DESCRIPTORS: u64 = 64;

/// How long the server may take to stop; a hung one never stops.
const HANGS: Duration = Duration::from_secs(60);

/// Without a free descriptor accept fails even if no client waits. The server
/// must not retry at once, but refuse clients that wait, and stop when asked.
#[test]
fn a_server_without_descriptors_refuses_and_stops() {
    test_support::limit_descriptors(DESCRIPTORS);
    let server = server();
    let client = open(&server);
    // The server may still free a few descriptors, so connect more clients.
    let late = [(); 8].map(|()| new_socket(SocketFlags::CLOEXEC).unwrap());
    let taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for socket in &late {
        server.address().connect_socket(socket).unwrap();
    }
    let (frame, kind) = next(&late[7]);
    assert_eq!(kind, Some(FrameKind::Done));
    assert_eq!(frame.result(), Err(Errno::MFILE));
    let (stopped, told) = mpsc::channel();
    thread::spawn(move || {
        drop(server);
        let _ = stopped.send(());
    });
    assert_eq!(told.recv_timeout(HANGS), Ok(()), "the server does not stop");
    drop((client, late, taken));
}
