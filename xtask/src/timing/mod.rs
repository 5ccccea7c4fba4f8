// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timing model against what others measured: the table of
//! docs/timing.md.

mod figures;
mod host;
mod jobs;
mod product;
mod rows;
mod tiles;

use std::fmt::Write;

use anyhow::Result;

use figures::FigureRole;

/// The table, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let mut page =
        String::from("Modelled figures; F: a parameter was fitted to it, H: held out.\n\n");
    let tables = rows::all()?;
    for (name, role) in [
        ("fitted", FigureRole::Fitted),
        ("held out", FigureRole::HeldOut),
    ] {
        let rows = tables.iter().flat_map(|table| &table.rows);
        let errors: Vec<f64> = rows
            .filter(|row| row.role == role)
            .map(|row| 100.0 * row.error().abs())
            .collect();
        writeln!(
            page,
            "- {} figures {name}: {:.0} % off on average, {:.0} % at most",
            errors.len(),
            errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            errors.iter().copied().fold(0.0, f64::max)
        )?;
    }
    for table in tables {
        write!(page, "\n### {}\n\n{}\n\n", table.title, table.conditions)?;
        page.push_str(
            "| figure | unit | published | modelled | error | |\n|---|---|---|---|---|---|\n",
        );
        for row in &table.rows {
            let role = match row.role {
                FigureRole::Fitted => "F",
                FigureRole::HeldOut => "H",
            };
            writeln!(
                page,
                "| {} | {} | {} | {} | {:+.0} % | {role} |",
                row.what,
                row.unit,
                number(row.published),
                number(row.modelled),
                100.0 * row.error()
            )?;
        }
    }
    Ok(page)
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [461.2, 25.32, 7.678, 0.7904].map(number);
        assert_eq!(shown, ["461", "25.3", "7.68", "0.790"]);
    }

    #[test]
    fn every_row_is_a_line() {
        let page = markdown().unwrap();
        let rows: usize = rows::all()
            .unwrap()
            .iter()
            .map(|table| table.rows.len())
            .sum();
        let lines = page
            .lines()
            .filter(|line| line.ends_with("| F |") || line.ends_with("| H |"));
        assert_eq!(lines.count(), rows);
        assert!(rows > 30);
    }
}
