// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats rows of text as columns.

use std::collections::BTreeSet;
use std::iter;

pub(crate) const MIB: f64 = 1024.0 * 1024.0;

/// Bytes in mebibytes.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

/// Joins parts to one text, with `between` between them.
pub(crate) fn joined<T: ToString>(parts: impl IntoIterator<Item = T>, between: &str) -> String {
    let parts: Vec<String> = parts.into_iter().map(|part| part.to_string()).collect();
    parts.join(between)
}

/// Formats headings, and rows with as many cells. Columns have their minimum width; numbers are
/// right-aligned.
pub(crate) fn table<T: ToString>(
    heads: impl IntoIterator<Item = T>,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let heads: Vec<String> = heads.into_iter().map(|head| head.to_string()).collect();
    let columns = heads.len();
    let rows: Vec<Vec<String>> = iter::once(heads).chain(rows).collect();
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let width = |column| cells(column).map(|cell| cell.chars().count()).max();
    // The first column names the row.
    let has_numbers = |column| column > 0 && cells(column).skip(1).all(|cell| is_number(cell));
    let form = |column| (width(column).unwrap_or(0), has_numbers(column));
    let forms: Vec<(usize, bool)> = (0..columns).map(form).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&forms);
        let cells = cells.map(|(cell, &(width, is_number))| {
            if is_number {
                format!("{cell:>width$}")
            } else {
                format!("{cell:width$}")
            }
        });
        text.push_str(joined(cells, "  ").trim_end());
        text.push('\n');
    }
    text
}

/// Whether a cell is a number, or `-` for no number.
pub(crate) fn is_number(cell: &str) -> bool {
    cell == "-" || cell.parse::<f64>().is_ok()
}

/// The numbers as ranges, such as `0-3, 8`; `...` after the first few.
pub(crate) fn ranges(numbers: &BTreeSet<usize>) -> String {
    const MOST: usize = 4;
    let numbers: Vec<usize> = numbers.iter().copied().collect();
    let mut stretches = numbers.chunk_by(|one, next| one + 1 == *next);
    let shown = stretches.by_ref().take(MOST).map(|stretch| match stretch {
        [first, .., last] => format!("{first}-{last}"),
        [alone] => alone.to_string(),
        [] => String::new(),
    });
    let shown: Vec<String> = shown.collect();
    let more = stretches.next().map(|_| "...".to_owned());
    joined(shown.into_iter().chain(more), ", ")
}
