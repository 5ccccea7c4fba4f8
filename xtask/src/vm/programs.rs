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
use super::runner::GuestRunner;
use crate::arch::{Arch, first_missing};
use crate::process::CommandOutput;
use crate::report::{CheckVerdict, VerdictTally};
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

/// Types whose self-test runs.
const TYPES: [&str; 3] = ["int8", "fp16", "int4"];

/// Time that a guest has for one program, seconds.
const LIMIT: u64 = 600;
/// Time that the compiler has for one client.
const COMPILING: Duration = Duration::from_secs(600);

/// Runs them all; an error if one failed.
pub(super) fn run(kernel: &KernelArgs) -> Result<()> {
    let compiler = Arch::Arm64.cross_linker();
    if let Some(missing) = first_missing([&compiler]) {
        bail!("`{missing}` is missing (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)");
    }
    let runner = GuestRunner::prepare(&Guest::new(kernel.clone(), 1))?;
    let mut report = VerdictTally::default();
    for (name, said) in CLIENTS {
        report.add(name, client(&runner, &compiler, name, said));
    }
    let probe = runner.files("npu-probe")?;
    report.add("npu-probe doctor", doctor(&runner, &probe));
    for ty in TYPES {
        report.add(&format!("npu-probe {ty}"), self_test(&runner, &probe, ty));
    }
    println!("\n{}", report.closing_line());
    ensure!(report.failed() == 0, "{} programs failed", report.failed());
    Ok(())
}

/// Compiles and runs a client, which must say `said` last.
fn client(runner: &GuestRunner, compiler: &str, name: &str, said: &str) -> Result<CheckVerdict> {
    let (mut files, place) = runner.files(&format!("/bin/{name}"))?;
    files.add(&compile(compiler, name)?, &place)?;
    let output = execute(runner, files, &[&place])?;
    let text = output.text();
    let last = text.lines().last().unwrap_or_default();
    ensure!(
        last == said,
        "it wrote {text:?} and ended with {}: {}",
        output.status,
        output.tail()
    );
    Ok(CheckVerdict::Pass(last.to_owned()))
}

/// Static, since the guest has no libraries.
fn compile(compiler: &str, name: &str) -> Result<PathBuf> {
    let sources = paths::root().join("tests/clients/c");
    let folder = paths::target().join("guests/clients");
    fs::create_dir_all(&folder).context("making a directory")?;
    let binary = folder.join(name);
    let mut command = Command::new(compiler);
    command
        .current_dir(sources)
        .args(["-static", "-std=gnu11", "-O1", "-o"])
        .arg(&binary)
        .arg(format!("{name}.c"))
        .args(SHARED);
    process::run(command, COMPILING)?.checked(compiler)?;
    Ok(binary)
}

/// `npu-probe doctor`, which must find the node in the files of this very kernel.
fn doctor(runner: &GuestRunner, (files, place): &(Initramfs, String)) -> Result<CheckVerdict> {
    let output = execute(runner, files.clone(), &[place, "doctor"])?;
    let text = output.checked("npu-probe doctor")?.text();
    let last = text.lines().last().unwrap_or_default();
    Ok(CheckVerdict::Pass(last.to_owned()))
}

/// `npu-probe`'s self-test.
fn self_test(
    runner: &GuestRunner,
    (files, place): &(Initramfs, String),
    ty: &str,
) -> Result<CheckVerdict> {
    let command = [place, "--device", "/dev/accel/accel0", "--dtype", ty];
    let output = execute(runner, files.clone(), &command)?;
    let text = output.checked("npu-probe")?.text();
    let line = text.lines().find(|line| line.contains("PASS"));
    let line = line.with_context(|| format!("no PASS in {text:?}"))?;
    Ok(CheckVerdict::Pass(line.trim().to_owned()))
}

fn execute(runner: &GuestRunner, mut files: Initramfs, command: &[&str]) -> Result<CommandOutput> {
    files.command(command);
    let (output, _) = runner.finish(files, LIMIT)?.of_program()?;
    Ok(output)
}
