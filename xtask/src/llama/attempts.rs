// SPDX-License-Identifier: MIT OR Apache-2.0
//! Some tools write their log and their text in a thread and may exit first:
//! the end is lost now and then, with status 0, on a busy machine often.

use anyhow::{Result, bail};

use crate::process::CommandOutput;

/// How often a run is repeated at most.
const ATTEMPTS: usize = 20;

/// Runs `tool` until its output `is_whole`.
///
/// # Errors
/// Those of `run`, and if something is missing each time.
pub(super) fn until_whole(
    tool: &str,
    run: impl Fn() -> Result<CommandOutput>,
    is_whole: impl Fn(&CommandOutput) -> bool,
) -> Result<CommandOutput> {
    for _ in 0..ATTEMPTS {
        let output = run()?;
        if is_whole(&output) {
            return Ok(output);
        }
    }
    bail!("{tool} lost the end of its output in each of {ATTEMPTS} runs")
}
