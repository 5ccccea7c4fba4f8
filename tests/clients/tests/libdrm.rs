// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client that uses libdrm, which the README does not ask for.
//!
//! It has a separate harness: Rust's decides at build time which tests are
//! ignored, and libdrm may come or go later. This one prints the same words.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Stdio};

use client_tests::{COMPILER, Client, SHARED, all_ran, report};

const NAME: &str = "matmuls_and_sharing_by_libdrm";

/// Flags of Debian's headers and library.
const LIBDRM: [&str; 2] = ["-I/usr/include/libdrm", "-ldrm"];

/// A program that needs headers and library.
const PROGRAM: &str = "#include <xf86drm.h>\nint main(void) { return drmAvailable(); }\n";

fn has_libdrm() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("it.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compiler = Command::new(COMPILER);
    compiler.arg("-o").arg(folder.path().join("it")).arg(source);
    let compiled = compiler.args(LIBDRM).stderr(Stdio::null()).status();
    compiled.unwrap().success()
}

fn matmuls_and_sharing_by_libdrm() {
    let client = Client::compile("drm", &[&SHARED[..], &LIBDRM].concat());
    all_ran(&report(&client, &[]), 2, 6);
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    // Options follow the part of a name that cargo was given, if any.
    let part = arguments.first().filter(|word| !word.starts_with('-'));
    let chosen = part.is_none_or(|part| NAME.contains(part));
    if arguments.iter().any(|word| word == "--list") {
        println!("{NAME}: test");
    } else if !chosen {
        println!("test {NAME} is filtered out");
    } else if has_libdrm() {
        matmuls_and_sharing_by_libdrm();
        println!("test {NAME} ... ok");
    } else {
        println!("test {NAME} ... ignored, it needs libdrm and its headers (Debian: libdrm-dev)");
    }
}
