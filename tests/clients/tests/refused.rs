// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server that refuses every client.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client_tests::Client;
use npu_wire::{Address, Frame, FrameKind};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use zerocopy::IntoBytes;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// The server is often gone before the client has asked for anything. The
/// client must still learn the reason.
#[test]
fn why_is_told_however_early_the_server_goes() {
    let address = Address::unique(process::id(), u64::MAX);
    let listener = common::listen(&address, BACKLOG);
    let ended = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let mut client = Client::compile("refused", &[]).alone(folder.path());
    let name = String::from_utf8(address.name().to_vec()).unwrap();
    client.env(npu_wire::ENVIRONMENT, name);
    let output = thread::scope(|scope| {
        let ended = &ended;
        // The listener closes with the thread; then no connection waits.
        scope.spawn(move || {
            let status = -Errno::MFILE.raw_os_error();
            let refusal = Frame::with_status(FrameKind::Done, status);
            while let Ok(client) = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC) {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                // The client may have been killed.
                let _ = npu_wire::send(&client, [refusal.as_bytes(), &[]], &[]);
            }
        });
        let output = client.output();
        // Wakes the server, which waits for one more connection.
        ended.store(true, Ordering::Relaxed);
        address.connect(SocketFlags::CLOEXEC).unwrap();
        output.unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
