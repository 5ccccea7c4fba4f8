// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a step, passes its output on as it comes, and keeps the lines about failed tests, skipped
//! tests and results.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Lines at the end of a step that are shown again if it failed.
const LAST_LINES: usize = 15;

/// The kept lines of a step's output.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StepOutput {
    /// Tests and checks that did not run, and why: lines that begin with SKIP, and tests that
    /// Rust's harness ignored.
    pub(super) skips: Vec<String>,
    /// Checks that failed for an external cause: SKIP-EXTERNAL.
    pub(super) external: Vec<String>,
    /// Figures for the table in docs/testing.md: RESULT.
    pub(super) results: Vec<String>,
    /// Failed tests of Rust's harness or pytest.
    pub(super) failed: Vec<String>,
    /// Panicked threads, named like their tests by Rust's harness, and their messages.
    pub(super) panics: Vec<(String, String)>,
    /// The last lines.
    pub(super) last: VecDeque<String>,
}

/// Runs `command` to its end.
pub(super) fn run(mut command: Command) -> Result<(ExitStatus, StepOutput)> {
    let (output, input) = io::pipe().context("making a pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input);
    let mut child = command.spawn().context("starting it")?;
    // Only the child may hold the write ends of the pipe, or reading never ends.
    drop(command);
    let kept = StepOutput::read(output, io::stdout());
    let status = child.wait().context("waiting for it")?;
    Ok((status, kept.context("passing its output on")?))
}

impl StepOutput {
    /// Copies `from` to `to` line by line.
    fn read(from: impl Read, mut to: impl Write) -> io::Result<Self> {
        let mut kept = Self::default();
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            to.write_all(&line)?;
            to.flush()?;
            kept.keep(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        Ok(kept)
    }

    /// The first things to read about a failed step: its failed tests, else its last lines.
    pub(super) fn of_failure(&self) -> Vec<String> {
        if self.failed.is_empty() {
            return self.last.iter().cloned().collect();
        }
        let panic_of = |test: &String| self.panics.iter().find(|(thread, _)| thread == test);
        let failed = self.failed.iter().map(|test| match panic_of(test) {
            Some((_, message)) => format!("{test}: {message}"),
            None => test.clone(),
        });
        failed.collect()
    }

    fn keep(&mut self, line: &str) {
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        let panic = self
            .last
            .back()
            .filter(|before| before.contains(" panicked at "));
        if let Some(name) =
            panic.and_then(|panic| panic.strip_prefix("thread '")?.split('\'').next())
        {
            self.panics.push((name.to_owned(), line.to_owned()));
        }
        self.last.push_back(line.to_owned());
        let test = line.strip_prefix("test ");
        if let Some(name) = test.and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failed.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("FAILED ") {
            self.failed.push(rest.to_owned());
        }
        let ignored = test.and_then(|rest| rest.split_once(" ... ignored"));
        if let Some((name, reason)) = ignored {
            let reason = reason.strip_prefix(", ").unwrap_or("no reason given");
            self.skips.push(format!("{name}: {reason}"));
        } else if let Some(rest) = line.strip_prefix("SKIP ") {
            self.skips.push(rest.to_owned());
        } else if let Some(rest) = line.strip_prefix("SKIP-EXTERNAL ") {
            self.external.push(rest.to_owned());
        } else if let Some(rest) = line.strip_prefix("RESULT ") {
            self.results.push(rest.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_kept_with_their_panics() {
        let output = "test slow ... ok\ntest a::b ... FAILED\nthread 'a::c' (7) panicked at x.rs:1:\n\
                      meant\nthread 'a::b' (8) panicked at x.rs:2:\nleft is right\n\
                      FAILED test_x.py::test_y - AssertionError\nmore\n";
        let kept = StepOutput::read(output.as_bytes(), io::sink()).unwrap();
        assert_eq!(
            kept.of_failure(),
            ["a::b: left is right", "test_x.py::test_y - AssertionError"]
        );
        let kept = StepOutput::read("nothing\nfits\n".as_bytes(), io::sink()).unwrap();
        assert_eq!(kept.of_failure(), ["nothing", "fits"]);
    }

    #[test]
    fn steps_that_did_not_run_keep_their_reason() {
        let output = "SKIP prep: no board\ntest drm ... ignored, no libdrm\nRESULT 7 inputs\n\
                      test slow ... ignored\ntest plain ... ok\nSKIP-EXTERNAL abi: no net\n\
                      test result: ok. 1 passed; 0 failed; 2 ignored\n";
        let kept = StepOutput::read(output.as_bytes(), io::sink()).unwrap();
        let skips = ["prep: no board", "drm: no libdrm", "slow: no reason given"];
        assert_eq!(kept.skips, skips);
        assert_eq!(
            (&kept.external[0][..], &kept.results[0][..]),
            ("abi: no net", "7 inputs")
        );
    }
}
