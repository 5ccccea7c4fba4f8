// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the tool on the model.
#![allow(dead_code, reason = "each test binary uses some of it")]

use std::process::{Command, Output};

use serde_json::Value;

/// The tool, on the model whatever the environment says.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = test_support::program(env!("CARGO_BIN_EXE_npu-probe"));
    command
        .args(arguments)
        .env("ROCKET_DEVICE", "model")
        .env("XDG_CONFIG_HOME", "/nonexistent")
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
pub(crate) fn probe(arguments: &[&str]) -> (i32, String, String) {
    let output = command(arguments).output().unwrap();
    let code = output.status.code().unwrap();
    (code, stdout(&output), stderr(&output))
}

/// What `npu-probe` with these arguments prints; it must end with 0.
pub(crate) fn text(arguments: &[&str]) -> String {
    let (code, out, err) = probe(arguments);
    assert_eq!(code, 0, "{arguments:?}: {err}");
    out
}

/// The same with `--json`.
pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat())).unwrap()
}

/// Likewise, of a line of arguments.
pub(crate) fn json_of(line: &str) -> Value {
    json(&line.split(' ').collect::<Vec<_>>())
}
