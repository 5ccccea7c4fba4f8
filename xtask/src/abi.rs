// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask abi`: compares our structs and request numbers with the kernel's.
//!
//! A C program prints sizes, offsets and request numbers. It is compiled against the newest
//! `linux/rocket_accel.h` that Debian has, unpacked privately. A Rust program prints the same lines
//! from `rocket_uapi::sys`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::debian::{PrivateApt, unpack};
use crate::{paths, process};

/// The suite with Debian's newest kernel headers, and the package.
const SUITE: &str = "sid";
const PACKAGE: &str = "linux-libc-dev";

/// Compares the output of the C program with that of the Rust program.
pub(crate) fn run() -> Result<()> {
    let directory = paths::target().join("abi");
    if let Err(error) = fetch(&directory) {
        println!("SKIP-EXTERNAL abi: no kernel headers to compare with: {error:#}");
        return Ok(());
    }
    let program = directory.join("print_abi");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-Wall", "-Werror", "-isystem"])
        .arg(directory.join("root/usr/include"))
        .arg("-o")
        .arg(&program)
        .arg(paths::root().join("crates/rocket-uapi/abi/print_abi.c"));
    process::stdout(&compiler, process::LIMIT)?;
    let theirs = process::stdout(&Command::new(program), process::LIMIT)?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["run", "--quiet", "-p", "rocket-uapi"])
        .args(["--example", "print_abi"])
        .current_dir(paths::root());
    let ours = process::stdout(&cargo, process::LIMIT)?;
    for (ours, theirs) in ours.lines().zip(theirs.lines()).filter(|(a, b)| a != b) {
        println!("ours: {ours}\n      kernel header: {theirs}");
    }
    ensure!(
        ours == theirs,
        "the structs of rocket-uapi differ from the kernel header's"
    );
    println!(
        "{} facts equal those of the kernel header",
        ours.lines().count()
    );
    Ok(())
}

fn fetch(directory: &Path) -> Result<()> {
    let apt = PrivateApt::new(&directory.join("apt"), &[SUITE], "amd64")?;
    let root = directory.join("root");
    for package in apt.download(&[PACKAGE], false)? {
        unpack(&package, &root)?;
    }
    let header = root.join("usr/include/drm/rocket_accel.h");
    ensure!(
        header.exists(),
        "{PACKAGE} of {SUITE} contains no drm/rocket_accel.h"
    );
    Ok(())
}
