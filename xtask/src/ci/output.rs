// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a step with its output passed on as it comes, and keeps the lines that speak of
//! tests that did not run or tell results.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// What is kept of the output.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StepOutput {
    /// Tests and checks that did not run, and why: lines that begin with SKIP, and tests
    /// that Rust's harness ignored.
    pub(super) skips: Vec<String>,
    /// Checks that the outside world made impossible: SKIP-EXTERNAL.
    pub(super) external: Vec<String>,
    /// Figures for the table in docs/testing.md: RESULT.
    pub(super) results: Vec<String>,
}

/// Runs `command` to its end.
pub(super) fn run(mut command: Command) -> Result<(ExitStatus, StepOutput)> {
    let (output, input) = io::pipe().context("making a pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input);
    let mut child = command.spawn().context("starting it")?;
    // Its ends of the pipe are the child's alone, or it would never end.
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

    fn keep(&mut self, line: &str) {
        let ignored = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... ignored"));
        if let Some((name, reason)) = ignored {
            let reason = reason.strip_prefix(", ").unwrap_or("it says no reason");
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
    fn what_did_not_run_is_kept_with_its_reason() {
        let output = "SKIP prep: no board\ntest drm ... ignored, no libdrm\nRESULT 7 inputs\n\
                      test slow ... ignored\ntest plain ... ok\nSKIP-EXTERNAL abi: no net\n\
                      test result: ok. 1 passed; 0 failed; 2 ignored\n";
        let kept = StepOutput::read(output.as_bytes(), io::sink()).unwrap();
        let skips = [
            "prep: no board",
            "drm: no libdrm",
            "slow: it says no reason",
        ];
        assert_eq!(kept.skips, skips);
        assert_eq!(
            (&kept.external[0][..], &kept.results[0][..]),
            ("abi: no net", "7 inputs")
        );
    }
}
