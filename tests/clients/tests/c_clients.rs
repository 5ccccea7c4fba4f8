// SPDX-License-Identifier: MIT OR Apache-2.0
//! C clients that share no code with this project. Most make their own register
//! programs, and compare the results with loops in plain C; others only call the
//! driver.
#![allow(clippy::unwrap_used, reason = "tests")]

use client_tests::{Client, SHARED, all_ran, report};
use serde_json::Value;

fn compile(name: &str) -> Client {
    Client::compile(name, &SHARED)
}

/// MACs of one round: four matmuls of 64 x 64 x 64, and a 3 x 3 convolution of
/// 16 x 12 pixels, 64 channels to 64.
const ROUND_MACS: u64 = 4 * 64 * 64 * 64 + 9 * 16 * 12 * 64 * 64;

#[test]
fn matmuls_by_plain_ioctls() {
    let client = compile("matmuls");
    let fast = ["--device", "model:clock=600"];
    let seen = report(&client, &fast);
    all_ran(&seen, 1, 10);
    assert_eq!(seen["macs"], 2 * ROUND_MACS);
    assert_eq!(seen["words"], 10 * 126);
    assert_eq!(seen["clock_hz"], 600_000_000);
    // The strictest model reports nothing, and one core suffices.
    let strict = "model:level=strict,cores=1";
    let slow = report(&client, &["--device", strict]);
    all_ran(&slow, 1, 10);
    assert_eq!(slow["cores"].as_array().unwrap().len(), 1);
    // Each report names the clock of its times: by default that of mainline.
    assert_eq!(slow["clock_hz"], 200_000_000);
    let end = |report: &Value| report["modelled_end_us"].as_f64().unwrap();
    let fast = report(&client, &["--device", &format!("{strict},clock=600")]);
    assert!(end(&slow) > end(&fast), "{slow:#}");
}

#[test]
fn threads_on_three_files() {
    let seen = report(&compile("threads"), &[]);
    all_ran(&seen, 3, 36);
    for core in seen["cores"].as_array().unwrap() {
        assert!(core["jobs"].as_u64().unwrap() > 0, "{seen:#}");
    }
}

/// A child works on its parent's file; every way to open and to call works; so do
/// 64 processes.
#[test]
fn jobs_of_several_processes_complete() {
    for (name, opens, jobs) in [("fork", 1, 4), ("ways", 15, 13), ("many", 64, 128)] {
        all_ran(&report(&compile(name), &[]), opens, jobs);
    }
}

#[test]
fn a_file_goes_from_process_to_process() {
    if test_support::emulated() {
        println!(
            "SKIP a_file_goes_from_process_to_process: the emulator's programs start no others"
        );
        return;
    }
    all_ran(&report(&compile("handed"), &[]), 1, 4);
}

#[test]
fn a_client_that_is_killed_disturbs_no_other() {
    let seen = report(&compile("dies"), &[]);
    // The survivor's, and those of three that died with their own files.
    assert_eq!(seen["opens"], 1 + 2 * 3, "{seen:#}");
    assert_eq!(seen["jobs_killed"], 0, "{seen:#}");
    let count = |name: &str| seen[name].as_u64().unwrap();
    // The survivor's twelve, and those that the others completed.
    assert!(count("jobs_completed") >= 12, "{seen:#}");
    assert_eq!(
        count("jobs"),
        count("jobs_completed") + count("jobs_lost") + count("jobs_unfinished"),
        "{seen:#}"
    );
    // Jobs are lost only with a client that dies, and three did.
    assert!(count("clients_died") <= 3, "{seen:#}");
    assert!(
        count("jobs_lost") == 0 || count("clients_died") > 0,
        "{seen:#}"
    );
}

#[test]
fn habits_of_clients_in_the_wild() {
    let seen = report(&compile("habits"), &[]);
    assert_eq!(seen["opens"], 1 + 65, "{seen:#}");
    // Wild pointers in a job: the call succeeds, the job is dropped.
    assert_eq!(seen["jobs_dropped"], 4 * 3, "{seen:#}");
    assert_eq!(seen["jobs_killed"], 0, "{seen:#}");
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

/// The chip and its one device are found; objects and fences are shared; closing
/// waits for the queue; many processes, files and threads work.
#[test]
fn clients_that_print_one_line_pass() {
    for name in ["identify", "sharing", "shares", "maps", "leaves", "crowd"] {
        let output = Client::compile(name, &["-pthread"]).pass(&[], &[]);
        let expected = format!("{name}: all is well\n");
        assert_eq!(output.stdout, expected.as_bytes());
    }
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
