// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first process of a virtual machine: runs one program, tells how it
//! ended, and switches the machine off.
//!
//! The command is in `/vm/command`, its arguments separated by zeros, and in
//! `/vm/environment` are its variables, `NAME=VALUE`, likewise. Its
//! output and its end go to the host through ports of a virtio console, by
//! name: `stdout`, `stderr`, `status`; its input comes from `stdin`, where there
//! is one. To `status` goes one line: `exit N`, `signal N`, or `failed: WHY`. To
//! `files` go those that `/vm/wanted` names, each after its length, which is the
//! largest number for one that cannot be read.

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

/// Where the command is, and what variables it gets besides PATH and HOME.
const COMMAND: &str = "/vm/command";
const ENVIRONMENT: &str = "/vm/environment";

/// Where the files are named that the host wants, separated by zeros.
const WANTED: &str = "/vm/wanted";

/// What is mounted where: type, place.
const MOUNTS: [(&str, &str); 6] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("tmpfs", "/tmp"),
];

/// Where the kernel lists the ports.
const PORTS: &str = "/sys/class/virtio-ports";

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("this is the first process of a virtual machine, and no use elsewhere");
        return ExitCode::FAILURE;
    }
    let Err(error) = run();
    // Where the kernel's messages go.
    eprintln!("vm-init: {error:#}");
    switch_off();
    ExitCode::FAILURE
}

/// Runs the command, and does not return but if something failed.
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
    writeln!(status, "{line}").context("telling how the program ended")?;
    switch_off();
    bail!("the machine cannot be switched off");
}

/// Starts the command and waits for its end, and for that of every process
/// that is left to this one.
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

/// Sends the files that are wanted.
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

/// The port of this name, which the host has.
fn port(name: &str) -> Result<File> {
    let path = find(name)?.with_context(|| format!("the host has no port {name}"))?;
    open(&path)
}

fn open(path: &str) -> Result<File> {
    let file = File::options().read(true).write(true).open(path);
    file.with_context(|| format!("opening {path}"))
}

/// The device of the port of this name.
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

/// Switches the machine off; the end of the first process would be a panic of
/// the kernel, which the host takes for one.
fn switch_off() {
    let _ = io::stderr().flush();
    let _ = reboot(RebootCommand::PowerOff);
}
