// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client on plain ioctls, and what `npu-probe run` makes of its end.
#![allow(clippy::unwrap_used, reason = "tests")]

use client_tests::Client;

#[test]
fn plain_ioctls() {
    let output = Client::compile("plain", &[]).pass(&[], &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    for part in ["opened 2 times", "4, 28672 bytes"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert_eq!(output.stdout, b"plain: all is well\n");
}

#[test]
fn the_exit_code_is_the_programs() {
    let client = Client::compile("ends", &[]);
    assert_eq!(client.run(&[], &["7"]).status.code(), Some(7));
    // 128 and SIGKILL's number.
    assert_eq!(client.run(&[], &["killed"]).status.code(), Some(137));
}
