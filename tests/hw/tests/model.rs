// SPDX-License-Identifier: MIT OR Apache-2.0
//! All rows on the software model, and the suite's own behaviour.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use npu_model::{Model, ModelOptions};
use rocket_hw_tests::{Choice, ROWS, ReportFormat, RowCounts, run};

#[test]
fn the_model_does_what_the_driver_does() {
    let device = Model::new(ModelOptions::default()).open_device();
    let mut out = Vec::new();
    let summary = run(&device, &Choice::default(), ReportFormat::Text, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    println!("{text}");
    // Rows about bugs of a kernel are not for a model.
    let skipped = ROWS.iter().filter(|row| row.name.starts_with("bug-"));
    let skipped = skipped.count();
    let elsewhere = ROWS.iter().filter(|row| row.needs_kernel).count();
    let expected = RowCounts {
        passed: ROWS.len() - skipped - elsewhere,
        skipped,
        ..RowCounts::default()
    };
    assert_eq!(summary, expected, "{text}");
}

fn suite(arguments: &[&str]) -> (Option<i32>, String) {
    let binary = env!("CARGO_BIN_EXE_rocket-conformance");
    let output = test_support::program(binary)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text)
}

#[test]
fn rows_can_be_chosen_by_name() {
    let (status, text) = suite(&["--device", "model", "mmap-private", "create-n"]);
    assert_eq!(status, Some(0), "{text}");
    let (lines, sums) = text.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(sums, "2 passed, 0 failed, 0 skipped");
    assert!(lines.contains("PASS mmap-private"), "{text}");
}

#[test]
fn rows_are_listed_with_their_facts() {
    let (status, text) = suite(&["--list"]);
    assert_eq!(status, Some(0));
    assert_eq!(text.lines().count(), ROWS.len());
    assert!(text.contains("[destructive: "), "{text}");
}

#[test]
fn mistakes_have_their_exit_status() {
    assert_eq!(suite(&["--device", "model", "no-such-row"]).0, Some(2));
    assert_eq!(suite(&["--no-such-option"]).0, Some(2));
    assert_eq!(suite(&["--device", "/dev/null"]).0, Some(3));
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROWS.len());
}
