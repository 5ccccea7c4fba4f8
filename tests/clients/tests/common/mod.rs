// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of several tests: for clients, and for servers that a test emulates.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "tests, of which each uses some"
)]

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Output;

use client_tests::{Client, probe};
use npu_wire::Address;
use rustix::net::SocketFlags;
use serde_json::Value;

/// What the clients share: the driver's structures, programs, references.
pub(crate) const SHARED: [&str; 4] = ["c/npu.c", "c/rocket.c", "-lm", "-pthread"];

/// Runs a client to its end. Returns the report of `npu-probe run`.
pub(crate) fn report(client: &Client, options: &[&str]) -> Value {
    let output = client.pass(&[&["--json"], options].concat(), &[]);
    assert_eq!(output.stdout, b"ok\n", "{}", text(&output));
    // The dynamic linker may complain of the library before the report, to
    // programs of another processor that an emulated client starts.
    let all = String::from_utf8_lossy(&output.stderr);
    let start = all.find("{\n").unwrap_or(0);
    serde_json::from_str(&all[start..]).unwrap()
}

/// All that a program printed.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Checks that every job completed without a trap.
#[track_caller]
pub(crate) fn all_ran(report: &Value, opens: u64, jobs: u64) {
    assert_eq!(report["opens"], opens, "{report:#}");
    assert_eq!(report["jobs"], jobs, "{report:#}");
    assert_eq!(report["jobs_completed"], jobs, "{report:#}");
    assert_eq!(report["traps"], serde_json::json!({}), "{report:#}");
}

/// The JSON in a file.
pub(crate) fn json_of(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Runs a command on a capture. Returns its exit code and output.
pub(crate) fn json(arguments: &[&str], file: &Path) -> (i32, Value) {
    let output = probe(arguments).arg("--json").arg(file).output().unwrap();
    let value = serde_json::from_slice(&output.stdout);
    let value = value.unwrap_or_else(|error| unreachable!("{error}: {}", text(&output)));
    (output.status.code().unwrap(), value)
}

/// Checks that a capture replays as it was recorded. Returns its jobs.
#[track_caller]
pub(crate) fn replayed(file: &Path) -> Vec<Value> {
    let (code, seen) = json(&["replay"], file);
    let passed = (code, &seen["result"]) == (0, &Value::from("PASS"));
    assert!(passed, "{code}: {seen:#}");
    seen["jobs"].as_array().unwrap().clone()
}

/// The programs of a job of a capture.
pub(crate) fn programs(job: &str, file: &Path) -> Value {
    let (code, seen) = json(&["decode", "--job", job], file);
    assert_eq!(code, 0);
    seen["jobs"][0]["programs"].clone()
}

/// A socket that listens under the server's name.
pub(crate) fn listen(address: &Address, backlog: i32) -> OwnedFd {
    let socket = npu_wire::new_socket(SocketFlags::CLOEXEC).unwrap();
    rustix::net::bind(&socket, &address.socket().unwrap()).unwrap();
    rustix::net::listen(&socket, backlog).unwrap();
    socket
}
