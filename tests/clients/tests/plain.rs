// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that use plain ioctls, and the exit code of `npu-probe run`.
#![allow(clippy::unwrap_used, reason = "tests")]

use client_tests::Client;

/// Checks a client that prints one line on success.
fn passes(name: &str) {
    let output = Client::compile(name, &["-pthread"]).pass(&[], &[]);
    let expected = format!("{name}: all is well\n");
    assert_eq!(output.stdout, expected.as_bytes());
}

#[test]
fn plain_ioctls() {
    let output = Client::compile("plain", &[]).pass(&[], &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    for part in ["opened     2 times", "4, 28672 bytes"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert_eq!(output.stdout, b"plain: all is well\n");
}

#[test]
fn the_chip_and_the_one_device_are_found() {
    passes("identify");
}

#[test]
fn objects_and_fences_are_shared() {
    passes("sharing");
    passes("shares");
    passes("maps");
}

#[test]
fn closing_waits_for_the_queue() {
    passes("leaves");
}

#[test]
fn many_processes_files_and_threads() {
    passes("crowd");
}

/// At its end, the client dies with jobs under way.
#[test]
fn signals_interrupt_waits() {
    let output = Client::compile("signals", &["-pthread"]).run(&[], &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"signals: all is well\n", "{said}");
    assert!(said.contains("1 died in the middle of a job"), "{said}");
    assert_eq!(output.status.code(), Some(137), "{said}");
}

#[test]
fn the_exit_code_is_the_programs() {
    let client = Client::compile("ends", &[]);
    assert_eq!(client.run(&[], &["7"]).status.code(), Some(7));
    // 128 and SIGKILL's number.
    assert_eq!(client.run(&[], &["killed"]).status.code(), Some(137));
}
