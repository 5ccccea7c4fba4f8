// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs clients that make their register programs themselves.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Output;

use client_tests::Client;
use serde_json::Value;

/// What the clients share: the driver's structures, programs, references.
pub(crate) const SHARED: [&str; 4] = ["c/npu.c", "c/rocket.c", "-lm", "-pthread"];

/// Runs a client to its end; what `npu-probe run` reports of it.
pub(crate) fn report(client: &Client, options: &[&str]) -> Value {
    let output = client.pass(&[&["--json"], options].concat(), &[]);
    assert_eq!(output.stdout, b"ok\n", "{}", text(&output));
    // Before it the dynamic linker may complain of the library, to programs of
    // another processor that an emulated client starts.
    let all = String::from_utf8_lossy(&output.stderr);
    let start = all.find("{\n").unwrap_or(0);
    serde_json::from_str(&all[start..]).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Every job ran to its end, and nothing was wrong with any.
#[track_caller]
pub(crate) fn all_ran(report: &Value, opens: u64, jobs: u64) {
    assert_eq!(report["opens"], opens, "{report:#}");
    assert_eq!(report["jobs"], jobs, "{report:#}");
    assert_eq!(report["jobs_completed"], jobs, "{report:#}");
    assert_eq!(report["traps"], serde_json::json!({}), "{report:#}");
}
