// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask abi`: our structs and request numbers against the kernel's.
//!
//! A C program that prints sizes, offsets and request numbers is compiled
//! against the newest `linux/rocket_accel.h` that Debian has, unpacked
//! privately; a Rust program prints the same lines from `rocket_uapi::sys`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::debian::{PrivateApt, unpack};
use crate::paths;

/// The suite with Debian's newest kernel headers.
const SUITE: &str = "sid";
/// The package with the kernel's uAPI headers.
const PACKAGE: &str = "linux-libc-dev";

/// Compares what the C program prints with what the Rust program does.
pub(crate) fn run() -> Result<()> {
    let directory = paths::target().join("abi");
    let headers = match fetch(&directory) {
        Ok(headers) => headers,
        Err(error) => {
            println!("SKIP-EXTERNAL abi: no kernel headers to compare with: {error:#}");
            return Ok(());
        }
    };
    let theirs = print_from_c(&directory, &headers)?;
    let ours = output(
        Command::new("cargo")
            .args([
                "run",
                "--quiet",
                "-p",
                "rocket-uapi",
                "--example",
                "print_abi",
            ])
            .current_dir(paths::root()),
    )?;
    if ours != theirs {
        for (ours, theirs) in ours.lines().zip(theirs.lines()).filter(|(a, b)| a != b) {
            println!("ours: {ours}\n      kernel header: {theirs}");
        }
        bail!("the structs of rocket-uapi differ from the kernel header's");
    }
    println!(
        "{} facts equal those of the kernel header",
        ours.lines().count()
    );
    Ok(())
}

/// Returns the include directory of the unpacked package.
fn fetch(directory: &Path) -> Result<std::path::PathBuf> {
    let apt = PrivateApt::new(&directory.join("apt"), &[SUITE], "amd64")?;
    let root = directory.join("root");
    for package in apt.download(&[PACKAGE], false)? {
        unpack(&package, &root)?;
    }
    let include = root.join("usr/include");
    if !include.join("drm/rocket_accel.h").exists() {
        bail!("{PACKAGE} of {SUITE} carries no drm/rocket_accel.h");
    }
    Ok(include)
}

fn print_from_c(directory: &Path, include: &Path) -> Result<String> {
    let source = paths::root().join("crates/rocket-uapi/abi/print_abi.c");
    let program = directory.join("print_abi");
    fs::create_dir_all(directory)?;
    output(
        Command::new("cc")
            .arg("-Wall")
            .arg("-Werror")
            .arg("-isystem")
            .arg(include)
            .arg("-o")
            .arg(&program)
            .arg(&source),
    )?;
    output(&mut Command::new(&program))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
