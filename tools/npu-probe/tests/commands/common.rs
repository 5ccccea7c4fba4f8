// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the tool on the model.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The tool; it uses the model whatever the environment says.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = test_support::program(env!("CARGO_BIN_EXE_npu-probe"));
    command
        .args(arguments)
        .env("ROCKET_DEVICE", "model")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("ROCKET_PROFILE")
        .env_remove("RUST_LOG");
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Exit code, standard output and error.
pub(crate) fn ended(output: &Output) -> (i32, String, String) {
    let code = output.status.code().unwrap();
    (code, stdout(output), stderr(output))
}

pub(crate) fn probe(arguments: &[&str]) -> (i32, String, String) {
    ended(&command(arguments).output().unwrap())
}

/// The words of a line of arguments.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Output of a line of arguments that must end with 0.
#[track_caller]
pub(crate) fn text(line: &str) -> String {
    fails(line, 0).0
}

/// JSON output of a line of arguments that must end with 0.
#[track_caller]
pub(crate) fn json(line: &str) -> Value {
    json_of(&words(line))
}

/// The same for arguments that may contain blanks.
#[track_caller]
pub(crate) fn json_of(arguments: &[&str]) -> Value {
    let (code, out, err) = probe(&[arguments, &["--json"]].concat());
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    serde_json::from_str(&out).unwrap()
}

/// Output and errors of a line of arguments that must end with `code`.
#[track_caller]
pub(crate) fn fails(line: &str, code: i32) -> (String, String) {
    let (ended, out, err) = probe(&words(line));
    assert_eq!(ended, code, "{line}: {out}{err}");
    (out, err)
}

/// Checks that a text contains all these parts.
#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

pub(crate) fn read_json(file: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The rows of a table whose cells are separated by bars; `#` begins a comment.
pub(crate) fn rows<const CELLS: usize>(table: &str) -> impl Iterator<Item = [&str; CELLS]> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        cells.try_into().unwrap()
    })
}
