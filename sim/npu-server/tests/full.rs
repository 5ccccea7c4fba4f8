// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server without a free descriptor. Alone in its process, whose limit it
//! changes.
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

/// Descriptors of the process.
const DESCRIPTORS: u64 = 64;

/// A server that hangs never stops: this says how long the failing test takes.
const HANGS: Duration = Duration::from_secs(60);

/// Without a free descriptor accept fails where nobody waits too: the server
/// must not try again and again, but refuse who is there, and stop when told.
#[test]
fn a_server_without_descriptors_refuses_and_stops() {
    test_support::limit_descriptors(DESCRIPTORS);
    let server = server();
    // Has the server take its spare descriptor.
    let client = open(&server);
    // The server may still close its end of a channel: more than that.
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
