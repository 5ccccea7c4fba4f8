// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm programs`: programs that were not written for the driver's
//! tests, each in a guest of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::guest::{Guest, KernelArgs};
use super::initramfs::Initramfs;
use super::runner::{GuestRunner, LIMIT};
use crate::arch::{Arch, first_missing};
use crate::{paths, process};

/// The clients of `tests/clients/c` that need nothing but the driver, and what
/// they say when all went well. (`fork` wants a shell, `drm` wants libdrm; `dies`
/// kills processes with jobs under way, after which kernels of today may go wrong:
/// tests/hw/bugs/use-after-close.md. The others are about the preload library.)
const CLIENTS: [(&str, &str); 11] = [
    ("plain", "plain: all is well"),
    ("sharing", "sharing: all is well"),
    ("shares", "shares: all is well"),
    ("crowd", "crowd: all is well"),
    // Its end is SIGKILL, with jobs under way.
    ("signals", "signals: all is well"),
    ("products", "ok"),
    ("threads", "ok"),
    ("handed", "ok"),
    ("ways", "ok"),
    ("many", "ok"),
    ("habits", "ok"),
];

/// Sources and options that each client is compiled with, beside its own source.
const SHARED: [&str; 4] = ["npu.c", "rocket.c", "-lm", "-pthread"];

/// Runs of npu-probe: its doctor, which must find the node in the files of this very
/// kernel, and the self-test of each type.
const PROBES: [&str; 4] = [
    "doctor",
    "--device /dev/accel/accel0 --dtype int8",
    "--device /dev/accel/accel0 --dtype fp16",
    "--device /dev/accel/accel0 --dtype int4",
];

/// Time that the compiler has for one client.
const COMPILING: Duration = Duration::from_secs(600);

/// Runs them all; an error if one failed.
pub(super) fn run(kernel: &KernelArgs) -> Result<()> {
    let compiler = Arch::Arm64.cross_linker();
    if let Some(missing) = first_missing([&compiler]) {
        bail!("`{missing}` is missing (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)");
    }
    let runner = GuestRunner::prepare(&Guest::new(kernel.clone(), 1))?;
    let mut failed = 0;
    let mut tell = |name: &str, outcome: Result<String>| match outcome {
        Ok(said) => println!("PASS {name}: {said}"),
        Err(error) => {
            failed += 1;
            println!("FAIL {name}: {error:#}");
        }
    };
    for (name, said) in CLIENTS {
        tell(name, client(&runner, &compiler, name, said));
    }
    let (files, place) = runner.files("npu-probe")?;
    for arguments in PROBES {
        let command: Vec<&str> = [&place[..]]
            .into_iter()
            .chain(arguments.split(' '))
            .collect();
        tell(
            &format!("npu-probe {arguments}"),
            probe(&runner, files.clone(), &command),
        );
    }
    ensure!(failed == 0, "{failed} programs failed");
    Ok(())
}

/// Compiles and runs a client, which must say `said` last.
fn client(runner: &GuestRunner, compiler: &str, name: &str, said: &str) -> Result<String> {
    let (mut files, place) = runner.files(&format!("/bin/{name}"))?;
    files.add(&compile(compiler, name)?, &place)?;
    files.command(&[&place]);
    let (output, _) = runner.finish(files, LIMIT)?.of_program()?;
    let text = output.text();
    let last = text.lines().last().unwrap_or_default();
    let (status, tail) = (output.status, output.tail());
    ensure!(
        last == said,
        "it wrote {text:?} and ended with {status}: {tail}"
    );
    Ok(last.to_owned())
}

/// Static, since the guest has no libraries.
fn compile(compiler: &str, name: &str) -> Result<PathBuf> {
    let folder = paths::target().join("guests/clients");
    fs::create_dir_all(&folder).context("making a directory")?;
    let binary = folder.join(name);
    let mut command = Command::new(compiler);
    command
        .current_dir(paths::root().join("tests/clients/c"))
        .args(["-static", "-std=gnu11", "-O1", "-o"])
        .arg(&binary)
        .arg(format!("{name}.c"))
        .args(SHARED);
    process::run(&command, COMPILING)?.checked(compiler)?;
    Ok(binary)
}

/// Runs npu-probe, which must end well.
fn probe(runner: &GuestRunner, mut files: Initramfs, command: &[&str]) -> Result<String> {
    files.command(command);
    let (output, _) = runner.finish(files, LIMIT)?.of_program()?;
    let text = output.checked("npu-probe")?.text();
    let line = text
        .lines()
        .find(|line| line.contains("PASS"))
        .or_else(|| text.lines().last());
    let line = line.with_context(|| format!("it wrote {text:?}"))?;
    Ok(line.trim().to_owned())
}
