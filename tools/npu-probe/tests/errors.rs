// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the most common failures say: the cause, once.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::probe;

#[test]
fn failures_tell_their_cause_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "hello").unwrap();
    let text = text.to_str().unwrap();
    for (code, line, told) in [
        (
            2,
            "decode /no/x",
            "cannot read /no/x: No such file or directory (os error 2)",
        ),
        (
            2,
            "replay /no/x",
            "/no/x: cannot read the file: No such file or directory (os error 2)",
        ),
        (
            2,
            "model /no/x.gguf",
            "cannot open /no/x.gguf: No such file or directory (os error 2)",
        ),
        (
            2,
            "model TEXT",
            "TEXT: not a GGUF file; convert the model with llama.cpp's convert_hf_to_gguf.py",
        ),
        (
            2,
            "replay TEXT",
            "TEXT: this is no capture file: it does not begin as one",
        ),
        (
            2,
            "bench 1x99999999999999x1",
            "A of 1 x 99999999999999 has more than 2147483648 elements",
        ),
        (
            2,
            "info --device model:level=lax",
            "the option `level` of the model does not take `lax`, but faithful, strict, silent",
        ),
        (
            3,
            "--device /dev/null",
            "no NPU at /dev/null: it is no DRM device; give the path of an accel node such as \
             /dev/accel/accel0. `auto` or `model` as the device would use the software model; \
             run `npu-probe doctor` to see what this machine lacks",
        ),
        (
            5,
            "--record /no/x",
            "/no/x: cannot write the capture: No such file or directory (os error 2)",
        ),
        (
            5,
            "--trace /no/x",
            "cannot write /no/x: No such file or directory (os error 2)",
        ),
    ] {
        let (ended, out, err) = probe(&line.replace("TEXT", text).split(' ').collect::<Vec<_>>());
        assert_eq!(
            err.replace(text, "TEXT"),
            format!("npu-probe: {told}\n"),
            "{line}"
        );
        assert_eq!(ended, code, "{line}: {out}");
    }
    let (code, _, err) = probe(&["plan", "8x64"]);
    assert_eq!(code, 2);
    let told = "error: invalid value '8x64' for '<MxKxN>': expected three numbers of at least \
                1, such as 512x4096x4096\n";
    assert!(err.starts_with(told), "{err}");
}

/// Stacks of a size that no system has: every thread fails to start (EAGAIN).
#[test]
fn threads_that_cannot_be_started_are_told() {
    let without_threads = |arguments: &[&str]| {
        let output = test_support::program(env!("CARGO_BIN_EXE_npu-probe"))
            .args(arguments)
            .env("ROCKET_DEVICE", "model")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
            .env_remove("RUST_LOG")
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!err.contains("panicked"), "{arguments:?}: {err}");
        (output.status.code(), err)
    };
    // Here the model's cores have no thread; what the CPU does before needs none.
    for arguments in [
        &["--shape", "64x64x64"][..],
        &["--shape", "64x64x64", "--dtype", "fp16"],
        &["bench", "64x64x64"],
        &["run", "--preload", "/dev/null", "--", "true"],
        &["serve"],
    ] {
        let (code, err) = without_threads(arguments);
        assert_eq!(code, Some(4), "{arguments:?}: {err}");
        for part in ["no thread could be started", "ulimit -u", "TasksMax"] {
            assert!(err.contains(part), "{arguments:?}: no `{part}` in {err}");
        }
    }
}
