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
    let rows = lines.filter_map(|line| row(line).transpose());
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let heads = "option of the model | verdict | the profile's remedy";
    Ok(table(heads, rows))
}

/// The row of a board, unless it differs only in how it fails.
fn row(line: &str) -> Result<Option<String>> {
    let cells: Vec<&str> = line.split(" | ").collect();
    let [_, device, _, _, _, sentence, changes] = cells[..] else {
        anyhow::bail!("{BOARDS}: `{line}` has not seven cells");
    };
    let Some(option) = device.strip_prefix("model:") else {
        return Ok(None);
    };
    if option.contains(",wedge=") {
        return Ok(None);
    }
    // The page says elsewhere what the profile allows.
    let is_remedy = |change: &&str| !change.contains(" may ") && *change != "-";
    let remedies: Vec<_> = changes.split("; ").filter(is_remedy).collect();
    let remedies = remedies.join("; ");
    Ok(Some(format!("`{option}` | {sentence} | {remedies}")))
}
