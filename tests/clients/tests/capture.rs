// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that know nothing of recording are recorded, and come out again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use client_tests::{Client, probe};
use serde_json::Value;

/// What the clients share: the driver's structures, programs, references.
const SHARED: [&str; 4] = ["c/npu.c", "c/rocket.c", "-lm", "-pthread"];

/// Runs the client `name` with its jobs recorded.
fn record(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let file = folder.join(name);
    let record = ["--record", file.to_str().unwrap()];
    let client = Client::compile(name, &SHARED);
    let output = client.pass(&[&record, options].concat(), &[]);
    assert_eq!(output.stdout, b"ok\n");
    file
}

/// What a command says of a capture, and its exit code.
fn json(arguments: &[&str], file: &Path) -> (i32, Value) {
    let output = probe(arguments).arg("--json").arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let value = serde_json::from_slice(&output.stdout);
    let value = value.unwrap_or_else(|error| unreachable!("{error}: {text}"));
    (output.status.code().unwrap(), value)
}

#[test]
fn what_clients_do_is_recorded_and_comes_out_again() {
    let folder = tempfile::tempdir().unwrap();
    for (name, jobs) in [("products", 10), ("threads", 36), ("fork", 4)] {
        let file = record(folder.path(), name, &[]);
        let (code, seen) = json(&["replay"], &file);
        assert_eq!(
            (code, &seen["result"]),
            (0, &Value::from("PASS")),
            "{seen:#}"
        );
        let replayed = seen["jobs"].as_array().unwrap();
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
    let programs = |file: &Path| {
        let (code, seen) = json(&["decode", "--job", "4"], file);
        assert_eq!(code, 0);
        seen["jobs"][0]["programs"].clone()
    };
    let full = programs(&record(folder.path(), "products", &[]));
    let file = record(folder.path(), "products", &["--zero-data"]);
    assert_eq!(programs(&file), full);
    assert!(full[0]["disassembly"].as_array().unwrap().len() > 100);
    let (code, seen) = json(&["replay"], &file);
    assert_eq!(
        (code, &seen["jobs"][9]["bytes_compared"]),
        (0, &Value::Null)
    );
}
