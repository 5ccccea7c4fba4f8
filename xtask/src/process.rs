// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command with a limit on its time.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, memfd_create};

/// How `timeout` ends when it has ended its command.
const TIMED_OUT: i32 = 124;

/// How a command ended that was not killed, and what it wrote.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    /// How the command ended.
    pub(crate) status: ExitStatus,
    /// All it wrote to stdout.
    pub(crate) stdout: Vec<u8>,
    /// All it wrote to stderr, decoded loosely.
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// What it wrote to stdout, as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// An error with the last lines of stderr, unless the command succeeded.
    pub(crate) fn checked(self, what: &str) -> Result<Self> {
        ensure!(
            self.status.success(),
            "{what} ended with {}: {}",
            self.status,
            self.tail()
        );
        Ok(self)
    }

    /// The last lines of stderr that are not blank, in one line.
    pub(crate) fn tail(&self) -> String {
        let lines = self.stderr.lines().map(str::trim);
        let lines = lines.rev().filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.take(4).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        lines.join(" | ")
    }
}

/// Runs `command` to its end, or kills it after `limit`. What it leaves behind goes on, and
/// what that writes is not waited for.
pub(crate) fn run(command: &Command, limit: Duration) -> Result<CommandOutput> {
    let name = command.get_program().to_string_lossy();
    let file = || memfd_create("output", MemfdFlags::CLOEXEC).map(File::from);
    let (mut stdout, mut stderr) = (file()?, file()?);
    let mut child = limited(command, limit)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .context("starting timeout")?;
    let status = wait(&mut child, limit).with_context(|| format!("waiting for {name}"))?;
    Ok(CommandOutput {
        status,
        stdout: written(&mut stdout)?,
        stderr: String::from_utf8_lossy(&written(&mut stderr)?).into_owned(),
    })
}

fn written(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind().context("reading what a command wrote")?;
    file.read_to_end(&mut bytes)
        .context("reading what a command wrote")?;
    Ok(bytes)
}

/// Runs a command of this machine to its end, however long it takes.
pub(crate) fn run_checked(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("running {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}

/// A command that only root can run to its end.
pub(crate) fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

/// `command` under coreutils' `timeout`, which ends it after `limit`. In the foreground, so
/// that the terminal's Ctrl-C reaches it.
pub(crate) fn limited(command: &Command, limit: Duration) -> Command {
    let mut limited = Command::new("timeout");
    limited
        .args(["--foreground", "--kill-after=10"])
        .arg(limit.as_secs_f64().to_string())
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    limited
}

/// Waits for a command that is [`limited`].
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let status = child.wait()?;
    ensure!(
        status.code() != Some(TIMED_OUT),
        "killed after {} s",
        limit.as_secs_f64()
    );
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<CommandOutput> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("SAID", "err");
        run(&command, limit)
    }

    #[test]
    fn output_and_status_are_kept() {
        let output = shell("echo out; echo $SAID >&2; exit 3", Duration::from_secs(900)).unwrap();
        assert_eq!(
            (output.status.code(), &output.text()[..]),
            (Some(3), "out\n")
        );
        let error = output.checked("sh").unwrap_err().to_string();
        assert!(error.contains("err"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let error = shell("exec sleep 60", Duration::from_millis(100)).unwrap_err();
        assert!(format!("{error:#}").contains("killed"), "{error:#}");
    }
}
