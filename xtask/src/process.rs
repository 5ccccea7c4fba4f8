// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command with a limit on its time.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How long what a command wrote may take to arrive after the command's limit.
const GRACE: Duration = Duration::from_secs(2);

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
        if self.status.success() {
            return Ok(self);
        }
        bail!("{what} ended with {}: {}", self.status, self.tail());
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

/// Runs `command` to its end, or kills it after `limit`, with those of its
/// descendants that [`kill_tree`] finds.
///
/// # Errors
/// If it cannot be started, is killed, or ends but leaves a process that holds
/// its output until `limit`; that process goes on.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<CommandOutput> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let end = Instant::now() + limit;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait(&mut child, limit).with_context(|| format!("waiting for {name}"))?;
    let read = |reading: ReaderThread<Vec<u8>>| {
        let reading = reading.result(end);
        reading.with_context(|| format!("reading what {name} wrote, which ended with {status}"))
    };
    Ok(CommandOutput {
        status,
        stdout: read(stdout)?,
        stderr: String::from_utf8_lossy(&read(stderr)?).into_owned(),
    })
}

/// Runs a command of this machine to its end, however long it takes.
pub(crate) fn run_checked(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("running {name}"));
    let status = status?;
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

/// A thread that reads from a process.
#[derive(Debug)]
pub(crate) struct ReaderThread<T>(JoinHandle<T>);

impl<T: Send + 'static> ReaderThread<T> {
    /// Starts a thread that calls `read`.
    pub(crate) fn start(read: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(thread::spawn(read))
    }

    /// What `read` returned. For use after the process has ended.
    ///
    /// # Errors
    /// If it has not returned shortly after `end`: a pipe is open as long as any
    /// process has it. The thread then stays until there is none.
    pub(crate) fn result(self, end: Instant) -> Result<T> {
        while !self.0.is_finished() {
            ensure!(
                Instant::now() < end + GRACE,
                "a process was left that holds the output of the one that ended"
            );
            thread::sleep(POLL);
        }
        self.0.join().map_err(|_| anyhow!("the reader panicked"))
    }
}

/// Reads `pipe` to its end in a thread.
pub(crate) fn collect(pipe: Option<impl Read + Send + 'static>) -> ReaderThread<Vec<u8>> {
    ReaderThread::start(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is kept, and shows the cause.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Waits for `child`, or kills it after `limit`, with those of its descendants
/// that [`kill_tree`] finds.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= end {
            kill_tree(child).with_context(|| format!("killing it after {} s", limit.as_secs()))?;
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
///
/// # Errors
/// If `child` cannot be killed, or processes cannot be listed; those found until
/// then are killed all the same.
pub(crate) fn kill_tree(child: &mut Child) -> Result<()> {
    kill_listed(child, descendants)
}

/// As [`kill_tree`], with the descendants that `list` gives.
fn kill_listed(child: &mut Child, list: impl Fn(u32) -> Result<Vec<u32>>) -> Result<()> {
    let mut stopped = Vec::new();
    let mut found = Ok(vec![child.id()]);
    // What is stopped starts nothing more, so that this ends.
    while let Ok(tree) = &mut found {
        tree.retain(|process| !stopped.contains(process));
        if tree.is_empty() {
            break;
        }
        signal("STOP", tree);
        stopped.append(tree);
        found = list(child.id());
    }
    // Not only the last list: one whose parent ended before it was stopped
    // itself is not in it, and would stay stopped.
    signal("KILL", &stopped);
    child.kill()?;
    child.wait()?;
    found.map(drop)
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
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Number of the signal KILL.
    const SIGKILL: i32 = 9;

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
    fn a_process_that_is_left_with_the_output_is_told() {
        let file = std::env::temp_dir().join(format!("xtask-left-{}", std::process::id()));
        let script = format!("sleep 1000 & echo $! >'{}'", file.display());
        // On a machine that is busy enough the shell itself takes too long.
        let error = [1, 10, 100]
            .into_iter()
            .map(|limit| run(shell(&script), Duration::from_secs(limit)))
            .map(|outcome| format!("{:#}", outcome.unwrap_err()))
            .find(|error| !error.contains("killed"))
            .unwrap();
        let left: u32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        signal("KILL", &[left]);
        fs::remove_file(&file).unwrap();
        assert!(error.contains("a process was left"), "{error}");
        assert!(error.contains("ended with exit status: 0"), "{error}");
    }

    #[test]
    fn what_is_known_is_killed_if_processes_cannot_be_listed() {
        let mut child = shell("exec sleep 1000").spawn().unwrap();
        let error = kill_listed(&mut child, |_| bail!("no list")).unwrap_err();
        assert_eq!(error.to_string(), "no list");
        let status = child.try_wait().unwrap().unwrap();
        assert_eq!(status.signal(), Some(SIGKILL));
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
