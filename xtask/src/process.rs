// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command with a limit on its time.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Output {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// All it wrote to stdout.
    pub(crate) stdout: Vec<u8>,
    /// All it wrote to stderr, decoded loosely.
    pub(crate) stderr: String,
}

impl Output {
    /// Its stdout as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// An error with the last lines of stderr, unless the command succeeded.
    pub(crate) fn checked(self, what: &str) -> Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        bail!("{what} ended with {}: {}", self.status, self.tail());
    }

    /// The last lines of stderr, in one line.
    pub(crate) fn tail(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().rev().take(4).collect();
        let lines: Vec<&str> = lines.into_iter().rev().map(str::trim).collect();
        lines.join(" | ")
    }
}

/// Runs `command` to its end, or kills it after `limit`.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait(&mut child, limit).with_context(|| format!("waiting for {name}"))?;
    let read = |thread: thread::JoinHandle<Vec<u8>>| {
        thread.join().map_err(|_| anyhow!("reading from {name}"))
    };
    Ok(Output {
        status,
        stdout: read(stdout)?,
        stderr: String::from_utf8_lossy(&read(stderr)?).into_owned(),
    })
}

/// Reads `pipe` to its end in a thread.
pub(crate) fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is kept, and shows the cause.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Waits for `child`, or kills it after `limit`.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            bail!("killed after {} s", limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_kept() {
        let output = run(
            shell("echo out; echo err >&2; exit 3"),
            Duration::from_secs(20),
        )
        .unwrap();
        assert_eq!(output.text(), "out\n");
        assert_eq!(output.status.code(), Some(3));
        let error = output.checked("sh").unwrap_err().to_string();
        assert!(error.contains("err"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let error = run(shell("exec sleep 60"), Duration::from_millis(100)).unwrap_err();
        assert!(format!("{error:#}").contains("killed"), "{error:#}");
    }
}
