// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another user who took the server's name. Needs root, to act as another user.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use client_tests::{Client, listen};
use npu_wire::Address;
use rustix::fs::Uid;
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// Any user but the one of the tests.
const OTHER: u32 = 12345;

/// Time limit for a client that hangs and never ends by itself. Only a failing
/// test takes so long.
const HANGS: Duration = Duration::from_secs(60);

/// Runs a client to its end, or kills it after [`HANGS`].
fn run(mut client: Command) -> Output {
    let mut child = client.stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > HANGS {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// A socket with the server's name that belongs to another user: its credentials
/// are those of the listening thread.
fn listen_as_other(address: Address) -> OwnedFd {
    let listening = thread::spawn(move || {
        let other = Uid::from_raw(OTHER);
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        listen(&address, 16)
    });
    listening.join().unwrap()
}

#[test]
fn a_stranger_with_the_name_gets_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP squatter: only root can act as another user");
        return;
    }
    let address = Address::unique(std::process::id(), 0);
    let listener = listen_as_other(address);
    let output = run(Client::compile("squatter", &[]).preloaded(Some(&address)));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("another user"), "{said}");
    // The client connected, and sent nothing.
    let client = rustix::net::accept(&listener).unwrap();
    let mut message = [0; 16];
    let received = rustix::net::recv(&client, &mut message, RecvFlags::DONTWAIT);
    assert!(
        matches!(received, Ok((0, _)) | Err(Errno::CONNRESET)),
        "{received:?}"
    );
}
