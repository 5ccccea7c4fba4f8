// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records clients that know nothing of it, and replays their jobs.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::{Path, PathBuf};

use client_tests::Client;
use common::{SHARED, json, programs, replayed};
use serde_json::Value;

/// Runs the client `name` and records its jobs.
fn record(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let file = folder.join(name);
    let record = ["--record", file.to_str().unwrap()];
    let client = Client::compile(name, &SHARED);
    let output = client.pass(&[&record, options].concat(), &[]);
    assert_eq!(output.stdout, b"ok\n");
    file
}

#[test]
fn what_clients_do_is_recorded_and_comes_out_again() {
    let folder = tempfile::tempdir().unwrap();
    for (name, jobs) in [("matmuls", 10), ("threads", 36), ("fork", 4)] {
        let file = record(folder.path(), name, &[]);
        let replayed = replayed(&file);
        assert_eq!(replayed.len(), jobs, "{name}");
        for job in replayed {
            assert_eq!(job["replayed"], "completed", "{name}: {job:#}");
            assert!(
                job["bytes_compared"].as_u64().unwrap() >= 3 * 4096,
                "{job:#}"
            );
        }
        let (code, seen) = json(&["decode", "--lint"], &file);
        assert_eq!(
            (code, &seen["programs"]),
            (0, &Value::from(jobs)),
            "{seen:#}"
        );
        assert_eq!(seen["without_words"], 0);
    }
}

#[test]
fn without_data_there_are_the_same_programs() {
    let folder = tempfile::tempdir().unwrap();
    let full = programs("4", &record(folder.path(), "matmuls", &[]));
    let file = record(folder.path(), "matmuls", &["--zero-data"]);
    assert_eq!(programs("4", &file), full);
    assert!(full[0]["disassembly"].as_array().unwrap().len() > 100);
    let (code, seen) = json(&["replay"], &file);
    assert_eq!(
        (code, &seen["jobs"][9]["bytes_compared"]),
        (0, &Value::Null)
    );
}
