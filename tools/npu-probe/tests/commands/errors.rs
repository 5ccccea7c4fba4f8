// SPDX-License-Identifier: MIT OR Apache-2.0
//! The most common failures name their cause, once.

use crate::common::{command, ends, fails, has, rows};

#[test]
fn failures_tell_their_cause_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, r#"{"a": 1, "b": 2}"#).unwrap();
    let text = text.to_str().unwrap();
    for [code, line, told] in rows(include_str!("errors.txt")) {
        let (_, err) = fails(&line.replace("TEXT", text), code.parse().unwrap());
        assert_eq!(
            err.replace(text, "TEXT"),
            format!("npu-probe: {told}\n"),
            "{line}"
        );
    }
    let (_, err) = fails("bench 8x64", 2);
    let told = "error: invalid value '8x64' for '[MxKxN]...': expected three numbers of at least \
                1, such as 512x4096x4096\n";
    assert!(err.starts_with(told), "{err}");
    for (line, told) in [
        ("--repeat 0", "expected a whole number of at least 1"),
        ("--seed 1x", "expected a whole number"),
        (
            "bench --clock fast",
            "expected a whole number of at least 1",
        ),
        ("model --mem lots x", "expected a number of bytes, such as"),
        ("--device modle", "did you mean `model`?"),
    ] {
        let code = if line.starts_with("--device") { 3 } else { 2 };
        has(&fails(line, code).1, &[told]);
    }
}

/// Programs and pictures are no register programs, in spite of their chance words.
#[test]
fn a_binary_file_that_is_no_program_is_told() {
    let program = env!("CARGO_BIN_EXE_npu-probe");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("elf");
    let bytes = std::fs::read(program).unwrap();
    std::fs::write(&file, &bytes[..1 << 20]).unwrap();
    for tool in ["decode", "asm"] {
        let (_, err) = fails(&format!("{tool} {}", file.display()), 2);
        has(&err, &["not a register program", "for no block of the NPU"]);
    }
}

/// Stacks larger than any system's memory: every thread fails to start (EAGAIN).
#[test]
fn threads_that_cannot_be_started_are_told() {
    // The model's cores have no thread here, and earlier work of the CPU needs
    // none.
    for line in [
        "--shape 64x64x64",
        "--shape 64x64x64 --dtype fp16",
        "bench 64x64x64",
        "run --preload /dev/null -- true",
    ] {
        let stack = (1_u64 << 60).to_string();
        let (_, err) = ends(command(line).env("RUST_MIN_STACK", stack), 4);
        has(
            &err,
            &["no thread could be started", "ulimit -u", "TasksMax"],
        );
    }
}
