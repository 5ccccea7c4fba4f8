// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command with a limit on its time.

use std::collections::HashSet;
use std::fs;
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

/// Runs `command` to its end, or kills it after `limit`, with all that it has
/// started.
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

/// Waits for `child`, or kills it and all that it has started after `limit`.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= end {
            kill_tree(child)?;
            bail!("killed after {} s", limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// Kills `child` and its descendants, and waits for `child`. Those whose parent
/// has ended are not found.
///
/// Not by a process group: the terminal's Ctrl-C reaches only the group in the
/// foreground, which is this process's.
pub(crate) fn kill_tree(child: &mut Child) -> Result<()> {
    let mut tree = vec![child.id()];
    let mut stopped = HashSet::new();
    // What is stopped starts nothing more, so that this ends.
    while tree.iter().any(|process| !stopped.contains(process)) {
        signal("STOP", &tree);
        stopped.extend(tree.iter().copied());
        tree = descendants(child.id())?;
    }
    signal("KILL", &tree);
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Sends a signal. A process that has ended meanwhile is no error.
fn signal(name: &str, processes: &[u32]) {
    let mut command = Command::new("sh");
    command.args(["-c", r#"kill -s "$@" 2>/dev/null"#, "kill", name]);
    command.args(processes.iter().map(u32::to_string));
    // What it cannot signal is gone, or not ours.
    let _ = command.status();
}

/// `process` and all that descend from it.
fn descendants(process: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").context("listing processes")? {
        let path = entry?.path();
        // Others end while they are looked at.
        if let Ok(stat) = fs::read_to_string(path.join("stat")) {
            parents.extend(parent(&stat));
        }
    }
    let mut tree = vec![process];
    let mut next = 0;
    while let Some(process) = tree.get(next).copied() {
        let children = parents.iter().filter(|(_, parent)| *parent == process);
        tree.extend(children.map(|(child, _)| *child));
        next += 1;
    }
    Ok(tree)
}

/// A process and its parent, from its line in `/proc/*/stat`: number, name in
/// parentheses, state, parent. The name may have anything in it.
fn parent(stat: &str) -> Option<(u32, u32)> {
    let (process, rest) = stat.split_once(' ')?;
    let (_, rest) = rest.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?;
    Some((process.parse().ok()?, parent.parse().ok()?))
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
        kill_tree(&mut child).unwrap();
        assert!(lines.next().is_none());
    }

    #[test]
    fn parents_are_read_whatever_the_name() {
        assert_eq!(parent("17 (a) b (c)) S 4 17 17 0"), Some((17, 4)));
        assert_eq!(parent("17 (sh"), None);
        assert_eq!(parent(""), None);
        let tree = descendants(std::process::id()).unwrap();
        assert_eq!(tree[0], std::process::id());
    }
}
