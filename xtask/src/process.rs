// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command with a limit on its time.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(20);

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

/// Runs `command` to its end, or kills it after `limit`, with its descendants. What it
/// leaves behind goes on, and what that writes is not waited for.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<CommandOutput> {
    let name = command.get_program().to_string_lossy().into_owned();
    let file = || memfd_create("output", MemfdFlags::CLOEXEC).map(File::from);
    let (mut stdout, mut stderr) = (file()?, file()?);
    command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?);
    let mut child = command
        .spawn()
        .with_context(|| format!("starting {name}"))?;
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

/// Waits for `child`, or kills it after `limit`, with its descendants.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= end {
            kill_tree(child.id());
            child.wait()?;
            bail!("killed after {} s", limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// Kills a process and its descendants, but for those whose parent has ended.
///
/// Not by a process group: the terminal's Ctrl-C reaches only the group in the
/// foreground, which is this process's.
fn kill_tree(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    // What is stopped starts nothing more; what cannot be signalled is gone.
    let signal = |signal| pid.map(|pid| kill_process(pid, signal));
    signal(Signal::STOP);
    children(process).into_iter().for_each(kill_tree);
    signal(Signal::KILL);
}

/// Processes whose parent is `process`.
fn children(process: u32) -> Vec<u32> {
    let child = |entry: fs::DirEntry| {
        // Number, name in parentheses, state, parent. Others end while they are looked at.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let parent: u32 = rest.split(' ').nth(1)?.parse().ok()?;
        stat.split(' ')
            .next()?
            .parse()
            .ok()
            .filter(|_| parent == process)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(child).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_kept() {
        let script = "sleep 1000 & echo $!; echo err >&2; exit 3";
        let output = run(shell(script), Duration::from_secs(900)).unwrap();
        kill_tree(output.text().trim().parse().unwrap());
        assert_eq!(output.status.code(), Some(3));
        let error = output.checked("sh").unwrap_err().to_string();
        assert!(error.contains("err"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let error = run(shell("exec sleep 60"), Duration::from_millis(100)).unwrap_err();
        assert!(format!("{error:#}").contains("killed"), "{error:#}");
    }

    #[test]
    fn what_a_command_started_is_killed_with_it() {
        // Were it alive, it would say so some time, and the pipe would be open
        // until then.
        let grandchild = "(sleep 20; echo alive) & echo started; wait";
        let mut child = shell(&format!("sh -c '{grandchild}'; true"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "started");
        kill_tree(child.id());
        child.wait().unwrap();
        assert!(lines.next().is_none());
    }
}
