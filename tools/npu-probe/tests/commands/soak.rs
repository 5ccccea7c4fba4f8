// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe selftest --seconds`; it runs until its processes have finished.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::common::{command, has, json, says};

#[test]
fn processes_multiply_and_some_are_killed() {
    if test_support::emulated() {
        println!(
            "SKIP processes_multiply_and_some_are_killed: the emulator's programs start no others"
        );
        return;
    }
    for (line, clients) in [
        ("selftest --seconds 0 --processes 2", 2),
        ("selftest --seconds 0 --processes 8 --kill", 8),
    ] {
        let report = json(line);
        let killed = report["killed"].as_u64().unwrap();
        assert_eq!(killed > 0, line.contains("kill"), "{report:#}");
        assert!(killed < clients, "{report:#}");
        assert_eq!(report["clients"], clients);
        assert_eq!(report["wrong"], 0, "{report:#}");
        let matmuls = report["products"].as_object().unwrap();
        let matmuls = matmuls.values().map(|number| number.as_u64().unwrap());
        assert!(matmuls.sum::<u64>() >= clients, "{report:#}");
    }
    says(
        "selftest --seconds 0 --processes 1",
        &["RESULT PASS (software model): "],
    );
}

/// Starts a command, waits for a line of its output, and interrupts it; returns the rest of its
/// output, and whether it succeeded.
fn interrupted(line: &str, begins: &str) -> (String, bool) {
    let mut child = command(line)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.starts_with(begins) {
        seen.clear();
        assert_ne!(out.read_line(&mut seen).unwrap(), 0, "no `{begins}`");
    }
    // Not SIGINT: a shell has its background jobs ignore that, and so the tests among them.
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    (rest, child.wait().unwrap().success())
}

#[test]
fn an_interrupted_soak_prints_its_tally() {
    if test_support::emulated() {
        println!("SKIP an_interrupted_soak_prints_its_tally: the emulator starts no others");
        return;
    }
    let (rest, succeeded) = interrupted("selftest --seconds 1000 --processes 2", "kernel");
    has(&rest, &["RESULT PASS (software model), interrupted: "]);
    assert!(succeeded);
}

#[test]
fn an_interrupted_recording_is_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.rkcap");
    let line = format!("--repeat 1000000 --record {}", file.display());
    let (_, succeeded) = interrupted(&line, "problem");
    assert!(!succeeded);
    says(
        &format!("decode --unfinished {}", file.display()),
        &["software model"],
    );
}
