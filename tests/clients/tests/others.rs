// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that are no clients do not notice anything.
#![allow(clippy::unwrap_used, reason = "tests")]

use client_tests::Client;

/// What a child inherits is what it would have without `npu-probe run`.
#[test]
fn limits_and_signals_are_as_they_were() {
    let client = Client::compile("inherits", &[]);
    let plain = client.bare().output().unwrap();
    let run = client.pass(&[], &[]);
    assert_eq!(
        String::from_utf8(run.stdout).unwrap(),
        String::from_utf8(plain.stdout).unwrap()
    );
}
