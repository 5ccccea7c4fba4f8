// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs commands, most with a time limit.

use std::io::{self, IsTerminal};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Time limit of a program that takes little time, on a busy machine or under QEMU.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// Exit status of `timeout` after it has ended its command.
const TIMED_OUT: i32 = 124;

/// Exit status and output of a command that was not killed. The output is decoded lossily.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
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
        let mut last: Vec<&str> = lines
            .rev()
            .filter(|line| !line.is_empty())
            .take(4)
            .collect();
        last.reverse();
        last.join(" | ")
    }
}

/// Runs `command` to its end, or kills it after `limit`.
pub(crate) fn run(command: &Command, limit: Duration) -> Result<CommandOutput> {
    let output = limited(command, limit).stdin(Stdio::null()).output();
    let output = output.context("starting timeout")?;
    in_time(output.status, limit)
        .with_context(|| format!("running {}", command.get_program().display()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(CommandOutput {
        status: output.status,
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    })
}

/// The standard output of `command`, without the white space at its end. An error if it fails or takes
/// longer than `limit`.
pub(crate) fn stdout(command: &Command, limit: Duration) -> Result<String> {
    let program = command.get_program().to_string_lossy();
    let output = run(command, limit)?.checked(&program)?;
    Ok(output.stdout.trim_end().to_owned())
}

/// Runs a command to its end without a time limit; an error if it fails.
pub(crate) fn run_checked(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("running {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}

/// A command that runs `program` as root.
pub(crate) fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

/// `command` under coreutils' `timeout`, which ends it after `limit`.
pub(crate) fn limited(command: &Command, limit: Duration) -> Command {
    let mut limited = Command::new("timeout");
    // Ctrl-C in a terminal reaches only the foreground process group. Without a terminal the
    // command gets a separate group, so that all its child processes end with it.
    if io::stdin().is_terminal() {
        limited.arg("--foreground");
    }
    limited
        .arg("--kill-after=10")
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

/// An error if a [`limited`] command reached its time limit.
pub(crate) fn in_time(status: ExitStatus, limit: Duration) -> Result<()> {
    let seconds = limit.as_secs_f64();
    ensure!(status.code() != Some(TIMED_OUT), "killed after {seconds} s");
    Ok(())
}

/// An error with a cause outside this repository and this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ExternalError(String);

/// Marks an error as external.
pub(crate) fn external(error: &anyhow::Error) -> anyhow::Error {
    ExternalError(format!("{error:#}")).into()
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
            (output.status.code(), &output.stdout[..]),
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
