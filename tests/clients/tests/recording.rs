// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that `npu-probe run` records and that know nothing of it: on the
//! model, and on a device node that `--device` forwards. The node is the
//! model's; another `npu-probe` shows it to the first.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use client_tests::{Client, NODE, SHARED, json, json_of, probe, programs, replayed, text};
use serde_json::Value;
use tempfile::TempDir;

/// A folder for a test; `None` if programs cannot start others here, as these tests need.
fn folder(test: &str) -> Option<TempDir> {
    if test_support::emulated() {
        println!("SKIP {test}: the emulator's programs start no others");
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

#[track_caller]
fn pass(mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// Reports of both sides of a node: the model's behind it, and that of the
/// `npu-probe` that forwarded it.
struct Seen {
    model: Value,
    node: Value,
    capture: PathBuf,
}

/// Runs the client `name` on the model, and records its jobs.
fn record(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let file = folder.join(name);
    let record = ["--record", file.to_str().unwrap()];
    let client = Client::compile(name, &SHARED);
    let output = client.pass(&[&record, options].concat(), &[]);
    assert_eq!(output.stdout, b"ok\n");
    file
}

/// Checks that a capture has `jobs` jobs, which replay with the same results.
#[track_caller]
fn comes_out_again(capture: &Path, jobs: usize) {
    let replayed = replayed(capture);
    assert_eq!(replayed.len(), jobs, "{}", capture.display());
    for job in replayed {
        assert_eq!(job["replayed"], "completed", "{job:#}");
        let compared = job["bytes_compared"].as_u64().unwrap();
        assert!(compared >= 3 * 4096, "{job:#}");
    }
}

#[test]
fn calls_of_clients_are_recorded_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, jobs) in [("matmuls", 10), ("threads", 36), ("fork", 4)] {
        let file = record(folder.path(), name, &[]);
        comes_out_again(&file, jobs);
        let (code, seen) = json(&["decode", "--lint"], &file);
        let told = (code, &seen["programs"]);
        assert_eq!(told, (0, &Value::from(jobs)), "{seen:#}");
        assert_eq!(seen["without_words"], 0);
    }
}

#[test]
fn without_data_there_are_the_same_programs() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let full = record(folders[0].path(), "matmuls", &[]);
    let bare = record(folders[1].path(), "matmuls", &["--zero-data"]);
    let full_programs = programs("5", &full);
    assert!(full_programs[0]["disassembly"].as_array().unwrap().len() > 100);
    assert_eq!(programs("5", &bare), full_programs);
    let (code, seen) = json(&["replay"], &bare);
    assert_eq!(
        (code, &seen["jobs"][9]["bytes_compared"]),
        (0, &Value::Null)
    );
}

/// Runs the client `name` on a node, and records its jobs.
#[track_caller]
fn record_node(folder: &Path, name: &str) -> Seen {
    let path = |kind: &str| folder.join(format!("{name}.{kind}"));
    let [model, node, capture] = ["model", "node", "rkcap"].map(path);
    let [to_model, to_node, to_capture] =
        [&model, &node, &capture].map(|path| path.to_str().unwrap());
    let options = ["--json", "--report", to_node, "--record", to_capture];
    let client = Client::compile(name, &SHARED);
    pass(client.on_a_node(&["--json", "--report", to_model], &options, &[]));
    Seen {
        model: json_of(&model),
        node: json_of(&node),
        capture,
    }
}

#[test]
fn jobs_of_a_node_are_recorded_and_come_out_again() {
    let Some(folder) = folder("jobs_of_a_node_are_recorded_and_come_out_again") else {
        return;
    };
    for (name, jobs, opens) in [("threads", 36, 3), ("fork", 4, 1)] {
        let seen = record_node(folder.path(), name);
        assert_eq!(seen.node["jobs_completed"], jobs, "{:#}", seen.node);
        assert_eq!(seen.model["jobs_completed"], jobs, "{:#}", seen.model);
        assert_eq!(seen.node["opens"], opens);
        assert_eq!(seen.node["node"], NODE);
        assert_eq!(seen.node["driver"], "rocket 0.0.0");
        for same in ["bos", "bo_bytes", "submits", "jobs", "tasks", "words"] {
            assert_eq!(seen.node[same], seen.model[same], "{name}: {same}");
        }
        comes_out_again(&seen.capture, jobs);
        // The recorder sees a device.
        let (_, decoded) = json(&["decode"], &seen.capture);
        assert_eq!(decoded["device"], NODE);
    }
}

#[test]
fn jobs_that_fail_do_so_through_a_node() {
    let Some(folder) = folder("jobs_that_fail_do_so_through_a_node") else {
        return;
    };
    let seen = record_node(folder.path(), "fails");
    // The server drops the job with an unknown handle itself.
    for (report, dropped) in [(&seen.node, 4), (&seen.model, 3)] {
        assert_eq!(report["jobs"], 4 + dropped, "{report:#}");
        assert_eq!(report["jobs_completed"], 3, "{report:#}");
        assert_eq!(report["jobs_dropped"], dropped, "{report:#}");
        assert_eq!(report["jobs_killed"], 1, "{report:#}");
    }
    assert_eq!(seen.node["jobs_others"], 0);
    let replayed = replayed(&seen.capture);
    let ends = replayed.iter();
    let ends: Vec<_> = ends.map(|job| job["recorded"].as_str().unwrap()).collect();
    let mut expected = ["completed"; 8];
    expected[1..5].fill("dropped");
    expected[5] = "killed";
    for (end, expected) in ends.iter().zip(expected) {
        assert!(end.starts_with(expected), "{ends:?}");
    }
    assert_eq!(ends.len(), expected.len());
}

/// Without `--record`, calls go straight through, and a signal ends a wait.
#[test]
fn a_node_can_be_watched_only() {
    let Some(folder) = folder("a_node_can_be_watched_only") else {
        return;
    };
    // The first ends itself by SIGKILL.
    for (name, jobs, code) in [("signals", 21, 128 + 9), ("plain", 0, 0), ("shares", 0, 0)] {
        let report = folder.path().join(name);
        let options = ["--json", "--report", report.to_str().unwrap()];
        let mut command = Client::compile(name, &SHARED).on_a_node(&[], &options, &[]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        let seen = json_of(&report);
        assert_eq!(seen["jobs"], jobs, "{seen:#}");
        // The end of jobs that nothing waits for is unknown.
        assert_eq!(seen["jobs_completed"], Value::Null);
        // The one that kills itself does so with jobs under way.
        let died = u64::from(name == "signals");
        assert_eq!(seen["clients_died"], died, "{name}: {seen:#}");
        // Signals end its waits, which it repeats until one ends in time.
        if name == "signals" {
            continue;
        }
        // Bytes of an imported object count too.
        pass(Client::compile(name, &SHARED).command(&options, &[]));
        let model_counts = json_of(&report);
        assert_ne!(model_counts["prep_bytes"], 0, "{model_counts:#}");
        for same in ["preps", "prep_bytes", "finis", "fini_bytes"] {
            assert_eq!(seen[same], model_counts[same], "{name}: {same}");
        }
    }
}

#[test]
fn a_node_that_will_not_do_is_told_of() {
    let client = Client::compile("plain", &SHARED);
    for (node, says) in [
        ("/dev/accel/accel7", "no such device node"),
        ("/dev/null", "not a DRM device"),
        ("/etc/passwd", "not a DRM device"),
    ] {
        let output = client.run(&["--device", node], &[]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        let said = text(&output);
        assert!(said.contains(node) && said.contains(says), "{said}");
    }
    let output = client.run(&["--device", NODE, "--trace", "/dev/null"], &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

/// `rocket-uapi`'s path to a kernel, with the model as the kernel: the node is
/// in the recorder's own process.
#[test]
fn the_self_test_runs_on_a_node() {
    let Some(folder) = folder("the_self_test_runs_on_a_node") else {
        return;
    };
    let file = folder.path().join("own.rkcap");
    let file = file.to_str().unwrap();
    let own = ["--json", "--device", NODE, "--record", file];
    let output = probe(&["run", "--"])
        .arg(probe(&[]).get_program())
        .args(own)
        .output()
        .unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    // It looks like a node, and the model must not pass for a board.
    assert_eq!(seen["device"]["name"], NODE, "{seen:#}");
    assert_eq!(seen["device"]["is_model"], true, "{seen:#}");
    let output = probe(&["replay", "--json", file]).output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["result"], "PASS", "{seen:#}");
}
