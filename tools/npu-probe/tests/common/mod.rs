// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the tool on the model.
#![allow(dead_code, reason = "each test binary uses some of it")]

use serde_json::Value;

/// Exit code, standard output and error.
pub(crate) fn probe(arguments: &[&str]) -> (i32, String, String) {
    let output = test_support::program(env!("CARGO_BIN_EXE_npu-probe"))
        .args(arguments)
        .env("ROCKET_DEVICE", "model")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
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
