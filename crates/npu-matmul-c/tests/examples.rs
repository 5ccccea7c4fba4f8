// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the examples in C and Python on the model.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A directory with the library under its soname and under its link name.
fn library() -> TempDir {
    // Cargo puts the library beside the tests.
    let test = std::env::current_exe().unwrap();
    let built = test.with_file_name("librocket_npu.so");
    let folder = tempfile::tempdir().unwrap();
    for name in ["librocket_npu.so", "librocket_npu.so.0"] {
        symlink(&built, folder.path().join(name)).unwrap();
    }
    folder
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Runs a program on the model; returns its output. It must succeed.
fn told(mut command: Command, library: &TempDir) -> String {
    command
        .env("LD_LIBRARY_PATH", library.path())
        .env("ROCKET_DEVICE", "model");
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles and runs a C example; returns its output.
fn told_by_c(example: &str) -> String {
    let library = library();
    let program = library.path().join(example);
    let compiler = if cfg!(target_arch = "aarch64") && test_support::emulated() {
        "aarch64-linux-gnu-gcc"
    } else {
        "cc"
    };
    let mut compile = Command::new(compiler);
    compile
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg(here(&format!("examples/{example}.c")))
        .arg("-I")
        .arg(here("include"))
        .arg("-L")
        .arg(library.path())
        .args(["-lrocket_npu", "-lm", "-o"])
        .arg(&program);
    assert!(compile.status().unwrap().success());
    told(test_support::program(&program), &library)
}

#[test]
fn a_program_in_c_multiplies() {
    assert_eq!(
        told_by_c("multiply"),
        "on the software model\n10 8 2\n0 0 0\nrefused: a matmul with int8 weights cannot give \
         binary32 results\n"
    );
}

#[test]
fn a_program_in_c_attends_as_plain_c_does() {
    assert_eq!(
        told_by_c("attend"),
        "as in plain C\nrefused: attention: Q's number of heads is 4; the other operands \
         require 6\n"
    );
}

#[test]
fn a_program_in_python_multiplies() {
    if test_support::emulated() {
        println!("SKIP a_program_in_python_multiplies: Python is of another processor");
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIP a_program_in_python_multiplies: it needs python3");
        return;
    }
    let mut python = Command::new("python3");
    python.arg(here("examples/multiply.py"));
    assert_eq!(told(python, &library()), "6 elements are right\n");
}
