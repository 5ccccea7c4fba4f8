// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command with its output passed on as it comes, and keeps the lines
//! that speak of skipped tests or tell results.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow};

/// Marks a test that did not run; the rest of the line is the reason.
const SKIP: &str = "SKIP ";
/// Marks a check that the outside world made impossible.
const SKIP_EXTERNAL: &str = "SKIP-EXTERNAL ";

/// Marks a figure that belongs into the record of a step.
const RESULT: &str = "RESULT ";

/// How a command of a step ended, and the lines of its output that are kept.
pub(crate) struct StepOutput {
    /// How the command ended.
    pub(crate) status: ExitStatus,
    /// Lines that begin with SKIP, without that word, and tests that are
    /// ignored: name and reason.
    pub(crate) skips: Vec<String>,
    /// Lines that begin with SKIP-EXTERNAL, without that word.
    pub(crate) external: Vec<String>,
    /// Lines that begin with RESULT, without that word.
    pub(crate) results: Vec<String>,
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command) -> Result<StepOutput> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting it")?;
    let stdout = child.stdout.take().ok_or_else(|| anyhow!("no stdout"))?;
    let stderr = child.stderr.take().ok_or_else(|| anyhow!("no stderr"))?;
    let errors = thread::spawn(move || pass_on(stderr, io::stderr()));
    let mut lines = pass_on(stdout, io::stdout())?;
    lines.extend(
        errors
            .join()
            .map_err(|_| anyhow!("the stderr reader panicked"))??,
    );
    let status = child.wait().context("waiting for it")?;
    Ok(StepOutput {
        status,
        skips: skips(&lines),
        external: marked(&lines, SKIP_EXTERNAL),
        results: marked(&lines, RESULT),
    })
}

/// Lines that begin with a mark, without it.
fn marked(lines: &[String], mark: &str) -> Vec<String> {
    let rest = |line: &String| line.strip_prefix(mark).map(str::to_owned);
    lines.iter().filter_map(rest).collect()
}

/// Tests and checks that did not run, each with its reason.
fn skips(lines: &[String]) -> Vec<String> {
    let ignored = lines.iter().filter_map(|line| ignored(line));
    marked(lines, SKIP).into_iter().chain(ignored).collect()
}

/// A test that its attribute keeps from running, in the words of Rust's test
/// harness: its name and the reason.
fn ignored(line: &str) -> Option<String> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = rest.strip_prefix(", ").unwrap_or("it says no reason");
    Some(format!("{name}: {reason}"))
}

/// Copies `from` to `to` line by line; returns the lines that are marked.
fn pass_on(from: impl Read, mut to: impl Write) -> io::Result<Vec<String>> {
    let mut reader = BufReader::new(from);
    let mut kept = Vec::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let marked = [SKIP, SKIP_EXTERNAL, RESULT]
            .iter()
            .any(|mark| text.starts_with(mark));
        if marked || ignored(text).is_some() {
            kept.push(text.to_owned());
        }
        line.clear();
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_run_is_kept_with_its_reason() {
        let output = "SKIP prep: no board\ntest drm ... ignored, no libdrm\n\
                      test slow ... ignored\ntest plain ... ok\n\
                      test result: ok. 1 passed; 0 failed; 2 ignored\n";
        let lines = pass_on(output.as_bytes(), io::sink()).unwrap();
        assert_eq!(
            skips(&lines),
            [
                "prep: no board",
                "drm: no libdrm",
                "slow: it says no reason"
            ]
        );
    }
}
