// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs inherit from `npu-probe run`, and its errors.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::Command;

use client_tests::Client;

/// A child inherits the same as without `npu-probe run`.
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

/// Opening fails as when a process or the system has no descriptor left.
#[test]
fn a_server_without_descriptors_says_so() {
    let client = Client::compile("full", &[]);
    let inner = client.command(&[], &[]);
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_remove("ROCKET_DEVICE")
        .output()
        .unwrap();
    let said = common::text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("full: all is well"), "{said}");
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_named() {
    let output = Client::compile("plain", &[])
        .command(&[], &[])
        .env("TMPDIR", "/no/where")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("/no/where") && said.contains("TMPDIR"),
        "{said}"
    );
}

/// A mistyped path must not lose the report after the program has run.
#[test]
fn a_report_that_cannot_be_written_is_told_of_before_the_program_runs() {
    for option in ["--report", "--trace", "--record"] {
        let output = Client::compile("plain", &[]).run(&[option, "/no/where/it"], &[]);
        assert_eq!(output.status.code(), Some(5), "{option}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("/no/where/it"), "{said}");
        assert_eq!(output.stdout, b"", "{option}: the program has run");
    }
}
