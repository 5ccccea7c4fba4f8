// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first process of a virtual machine: runs one program, reports how it
//! ended, and powers the machine off.
//!
//! `/vm/command` holds the command, and `/vm/environment` its variables as
//! `NAME=VALUE`; both are zero-separated. The host is connected through named
//! ports of a virtio console: `stdout` and `stderr`, `stdin` if there is one,
//! and `status`, which gets one line: `exit N`, `signal N`, or `failed: WHY`.
//! `files` gets each file that `/vm/wanted` names, after its 64-bit length;
//! u64::MAX stands for an unreadable file.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, mount};
use rustix::process::{WaitOptions, WaitStatus, wait};
use rustix::system::{RebootCommand, reboot};

/// The command, and its variables besides PATH and HOME.
const COMMAND: &str = "/vm/command";
const ENVIRONMENT: &str = "/vm/environment";

/// The names of files that the host wants, zero-separated.
const WANTED: &str = "/vm/wanted";

/// Mounts: type, place.
const MOUNTS: [(&str, &str); 6] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("tmpfs", "/tmp"),
];

/// Directory of the ports.
const PORTS: &str = "/sys/class/virtio-ports";

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("this is the first process of a virtual machine; do not run it elsewhere");
        return ExitCode::FAILURE;
    }
    let Err(error) = run();
    // The kernel's messages go there too.
    eprintln!("vm-init: {error:#}");
    switch_off();
    ExitCode::FAILURE
}

/// Runs the command; returns only if something failed.
fn run() -> Result<Infallible> {
    for (kind, place) in MOUNTS {
        fs::create_dir_all(place).with_context(|| format!("making {place}"))?;
        mount(kind, place, kind, MountFlags::empty(), None)
            .with_context(|| format!("mounting {kind} on {place}"))?;
    }
    let mut status = port("status")?;
    let line = match execute() {
        Ok(ended) => describe(ended),
        Err(error) => format!("failed: {error:#}"),
    };
    if let Err(error) = send_files() {
        eprintln!("vm-init: {error:#}");
    }
    writeln!(status, "{line}").context("sending the exit status")?;
    switch_off();
    bail!("the machine cannot be switched off");
}

/// Starts the command and waits for its end. Also reaps orphaned processes
/// meanwhile.
fn execute() -> Result<WaitStatus> {
    let command = fs::read(COMMAND).with_context(|| format!("reading {COMMAND}"))?;
    let mut words = command.split(|&byte| byte == 0).map(OsStr::from_bytes);
    let program = words.next().unwrap_or_default();
    let environment = fs::read(ENVIRONMENT).unwrap_or_default();
    let variables = environment.split(|&byte| byte == 0).filter_map(|set| {
        let mut parts = set.splitn(2, |&byte| byte == b'=').map(OsStr::from_bytes);
        parts.next().zip(parts.next())
    });
    let child = Command::new(program)
        .args(words)
        .env_clear()
        .env("PATH", "/bin")
        .env("HOME", "/tmp")
        .envs(variables)
        .current_dir("/tmp")
        .stdin(find("stdin")?.map_or(Ok(Stdio::null()), |path| open(&path).map(Stdio::from))?)
        .stdout(port("stdout")?)
        .stderr(port("stderr")?)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    loop {
        let ended = wait(WaitOptions::empty()).context("waiting for the program")?;
        if let Some((process, status)) = ended
            && u32::try_from(process.as_raw_nonzero().get()) == Ok(child.id())
        {
            return Ok(status);
        }
    }
}

/// Sends the files that the host wants.
fn send_files() -> Result<()> {
    let wanted = fs::read(WANTED).unwrap_or_default();
    let mut port = port("files")?;
    let paths = wanted.split(|&byte| byte == 0);
    for path in paths.filter(|path| !path.is_empty()) {
        let path = OsStr::from_bytes(path);
        let file = fs::read(path);
        let length = file.as_ref().map_or(u64::MAX, |file| file.len() as u64);
        let sent = port.write_all(&length.to_le_bytes());
        sent.and_then(|()| port.write_all(&file.unwrap_or_default()))
            .with_context(|| format!("sending {}", path.display()))?;
    }
    Ok(())
}

/// Opens the port of this name; fails if the host has none.
fn port(name: &str) -> Result<File> {
    let path = find(name)?.with_context(|| format!("the host has no port {name}"))?;
    open(&path)
}

fn open(path: &str) -> Result<File> {
    let file = File::options().read(true).write(true).open(path);
    file.with_context(|| format!("opening {path}"))
}

/// The device of the port of this name, if there is one.
fn find(name: &str) -> Result<Option<String>> {
    for entry in fs::read_dir(PORTS).context("listing the ports to the host")? {
        let entry = entry?;
        let named = fs::read_to_string(entry.path().join("name"))?;
        if named.trim() == name {
            return Ok(Some(format!("/dev/{}", entry.file_name().display())));
        }
    }
    Ok(None)
}

fn describe(status: WaitStatus) -> String {
    let status = ExitStatus::from_raw(status.as_raw());
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => format!("failed: ended with {status}"),
    }
}

/// Powers the machine off. If the first process ended instead, the kernel would
/// panic, and the host would report a panic.
fn switch_off() {
    let _ = io::stderr().flush();
    let _ = reboot(RebootCommand::PowerOff);
}
