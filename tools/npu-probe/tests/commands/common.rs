// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the tool on the model.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The tool with a line of arguments; it uses the model whatever the environment says.
pub(crate) fn command(line: &str) -> Command {
    let mut command = test_support::program(env!("CARGO_BIN_EXE_npu-probe"));
    command
        .args(line.split_whitespace())
        .env("ROCKET_DEVICE", "model")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("ROCKET_PROFILE")
        .env_remove("RUST_LOG");
    command
}

/// Output and errors of a command that must end with `code`, without a panic.
#[track_caller]
pub(crate) fn ends(command: &mut Command, code: i32) -> (String, String) {
    let output = command.output().unwrap();
    // Binary words are not UTF-8.
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8(output.stderr).unwrap();
    let ended = output.status.code();
    assert_eq!(ended, Some(code), "{command:?}: {out}{err}");
    assert!(!err.contains("panicked"), "{command:?}: {err}");
    (out, err)
}

/// Output and errors of a line of arguments that must end with `code`.
#[track_caller]
pub(crate) fn fails(line: &str, code: i32) -> (String, String) {
    ends(&mut command(line), code)
}

/// Output of a line of arguments that must end with 0.
#[track_caller]
pub(crate) fn text(line: &str) -> String {
    fails(line, 0).0
}

/// The same; checks that the output contains all these parts.
#[track_caller]
pub(crate) fn says(line: &str, parts: &[&str]) -> String {
    let said = text(line);
    has(&said, parts);
    said
}

/// Checks that a line of arguments ends with `code`, and with errors that contain all these parts.
#[track_caller]
pub(crate) fn fails_with(line: &str, code: i32, parts: &[&str]) {
    has(&fails(line, code).1, parts);
}

/// JSON output of a line of arguments that must end with 0.
#[track_caller]
pub(crate) fn json(line: &str) -> Value {
    json_of(command(line), 0)
}

/// JSON output of a command that must end with `code`.
#[track_caller]
pub(crate) fn json_of(mut command: Command, code: i32) -> Value {
    let (out, _) = ends(command.arg("--json"), code);
    serde_json::from_str(&out).unwrap()
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

/// Checks that a file has this text. `BLESS=1` accepts the text as expected.
#[track_caller]
pub(crate) fn compare(file: &Path, printed: &str) {
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(file, printed).unwrap();
        return;
    }
    let golden = fs::read_to_string(file).unwrap();
    let name = file.display();
    assert_eq!(printed, golden, "{name} (BLESS=1 takes it as right)");
}
