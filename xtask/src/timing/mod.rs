// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of docs/timing-figures.md: the timing model compared with published measurements.

mod matmul;
mod rows;
mod tiles;

use anyhow::Result;

use crate::generated::table;
use rows::FigureRow;

/// The table, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let mut page =
        String::from("Modelled figures; F: a parameter was fitted to it, H: held out.\n\n");
    let tables = rows::all()?;
    for (name, is_fitted) in [("fitted", true), ("held out", false)] {
        let rows = tables.iter().flat_map(|table| &table.rows);
        let rows = rows.filter(|row| row.is_fitted == is_fitted);
        let errors: Vec<f64> = rows.map(|row| 100.0 * row.error().abs()).collect();
        page += &format!(
            "- {} figures {name}: error {:.0} % on average, {:.0} % at most\n",
            errors.len(),
            errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            errors.iter().copied().fold(0.0, f64::max)
        );
    }
    let held_out = tables.iter().flat_map(|table| &table.rows);
    let held_out: Vec<_> = held_out.filter(|row| !row.is_fitted).collect();
    let inside = held_out.iter().filter(|row| row.is_inside()).count();
    page += &format!(
        "- {inside} of {} figures held out lie inside the range\n",
        held_out.len()
    );
    for subject in tables {
        let rows = subject.rows.iter().map(|row| {
            let [least, most] = row.range;
            let values = [row.published, row.modelled, least, most];
            let [published, modelled, least, most] = values.map(number);
            let (error, role) = (100.0 * row.error(), if row.is_fitted { "F" } else { "H" });
            let inside = if row.is_inside() { "yes" } else { "no" };
            let FigureRow { what, unit, .. } = row;
            format!(
                "{what} | {unit} | {published} | {modelled} | {error:+.0} % | {least} to {most} | \
                 {inside} | {role}"
            )
        });
        let rows = table(
            "figure | unit | published | modelled | error | range | inside | F or H",
            rows,
        );
        let (title, conditions) = (subject.title, subject.conditions);
        page += &format!("\n### {title}\n\n{conditions}\n\n{rows}");
    }
    Ok(page)
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
