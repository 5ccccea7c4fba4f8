// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run takes of the machine.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::llama::attempts::until_whole;
use crate::llama::model::Workshop;
use crate::paths;
use crate::process::{self, CommandOutput};

const LIMIT: Duration = Duration::from_secs(900);

/// Time and memory that one run of a program took.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RunUsage {
    /// Wall time, seconds.
    pub(super) wall_s: f64,
    /// CPU time in user mode, seconds.
    pub(super) user_s: f64,
    /// CPU time in the kernel, seconds.
    pub(super) system_s: f64,
    /// The largest resident set, KiB.
    pub(super) peak_kib: f64,
}

/// Runs a command to its end, in a process of its own that is told what it
/// took: the system's figures for this process's children are sums. Again, if
/// its output is not whole; what it wrote to stderr comes back.
pub(super) fn run(
    tool: &str,
    workshop: &Workshop,
    command: &Command,
    is_whole: impl Fn(&CommandOutput) -> bool,
) -> Result<(RunUsage, String)> {
    let file = workshop.path("taken.json");
    let once = || {
        let mut measured = workshop.script("measure.py");
        measured
            .arg(&file)
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(command.get_current_dir().unwrap_or(paths::root()));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => measured.env(name, value),
                None => measured.env_remove(name),
            };
        }
        process::run(measured, LIMIT)?.checked(tool)
    };
    let output = until_whole(tool, once, is_whole)?;
    let taken = fs::read(&file).context("reading what the run took")?;
    fs::remove_file(&file).context("removing it")?;
    Ok((serde_json::from_slice(&taken)?, output.stderr))
}

/// The one in the middle; of an even number the mean of the two. NaN of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len() / 2, sorted.len() % 2) {
        (0, 0) => f64::NAN,
        (half, 0) => f64::midpoint(sorted[half - 1], sorted[half]),
        (half, _) => sorted[half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).to_bits(), 2.5_f64.to_bits());
        assert!(median(&[]).is_nan());
    }
}
