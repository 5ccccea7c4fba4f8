// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of faulty boards in docs/first.md, from what the test of `npu-probe first` found.

use std::fs;

use anyhow::{Context, Result};

use crate::generated::table;
use crate::paths;

/// The file that the test compares and writes.
const BOARDS: &str = "tools/npu-probe/tests/commands/boards.txt";

/// The table, as Markdown.
pub(crate) fn boards() -> Result<String> {
    let text = fs::read_to_string(paths::root().join(BOARDS)).context(BOARDS)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(row).collect::<Result<Vec<_>>>()?;
    let heads = "the board | option of the model | verdict | changes of the profile";
    Ok(table(heads, rows))
}

fn row(line: &str) -> Result<String> {
    let cells: Vec<&str> = line.split(" | ").collect();
    let [what, device, _, _, _, sentence, changes] = cells[..] else {
        anyhow::bail!("{BOARDS}: `{line}` has not seven cells");
    };
    let option = match device.strip_prefix("model:") {
        Some(option) => format!("`{option}`"),
        None => String::new(),
    };
    let changes = if changes == "-" { "" } else { changes };
    Ok(format!("{what} | {option} | {sentence} | {changes}"))
}
