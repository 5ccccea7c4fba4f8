// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts, numbers and tables of the page.

use maud::Markup;

use crate::base::table::is_number;

/// Most characters of a text that is shown.
const MOST_SHOWN: usize = 300;

/// A text from a file, made safe to show, since files are not trusted: cut if it is too long,
/// and without characters that XML forbids or that change the direction of text.
pub(super) fn shown(text: &str) -> String {
    let is_hidden = |c: char| match c {
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'),
    };
    let start = text.chars().take(MOST_SHOWN);
    let mut shown: String = start
        .map(|c| if is_hidden(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MOST_SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A number from a file, of any size, in a few characters.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size < 1e9 && size.fract() == 0.0 => format!("{value:.0}"),
        size if size != 0.0 && !(1e-3..1e9).contains(&size) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A time in microseconds as text, with a suitable unit.
pub(super) fn time(us: f64) -> String {
    let (unit, value) = match us.abs() {
        size if size >= 1e6 => ("s", us / 1e6),
        size if size >= 1e3 => ("ms", us / 1e3),
        _ => ("us", us),
    };
    format!("{} {unit}", number(value))
}

/// Renders a text; parts between backticks become code.
pub(super) fn with_code(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    maud::html! { @for (index, part) in parts.iter().enumerate() {
        @if index % 2 == 1 { code { (part) } } @else { (part) }
    } }
}

/// Style of a table's cell: numbers are right-aligned, names and short words stay on one line,
/// sentences wrap.
fn cell_class(cell: &str) -> &'static str {
    const SHORT: usize = 22;
    const LONG: usize = 36;
    match cell.chars().count() {
        _ if is_number(cell) => "number",
        0..=SHORT => "short",
        LONG.. => "long",
        _ => "",
    }
}

/// Most rows of a table.
const MOST_ROWS: usize = 500;

/// A table, which scrolls horizontally on narrow screens.
pub(super) fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl ExactSizeIterator<Item = [String; COLUMNS]>,
) -> Markup {
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    let mut rows = rows.take(MOST_ROWS).peekable();
    let first = rows.peek().cloned();
    let first = first.unwrap_or([const { String::new() }; COLUMNS]);
    maud::html! {
        div.scroll tabindex="0" { table {
            thead { tr { @for (name, cell) in head.into_iter().zip(first) {
                th scope="col" class=(if is_number(&cell) { "number" } else { "" }) { (name) }
            } } }
            tbody { @for row in rows { tr { @for cell in row {
                td class=(cell_class(&cell)) { (with_code(&cell)) }
            } } } }
        } }
        @if left_out > 0 { p.note { (left_out) " more rows are left out." } }
    }
}

/// A table whose rows become blocks on narrow screens; each row has a class.
pub(super) fn blocks<'a, const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl Iterator<Item = (&'a str, [String; COLUMNS])>,
) -> Markup {
    maud::html! { table.blocks {
        thead { tr { @for name in head { th scope="col" { (name) } } } }
        tbody { @for (class, cells) in rows.take(MOST_ROWS) { tr.(class) {
            @for (name, cell) in head.into_iter().zip(cells) { @if !cell.is_empty() {
                td class=(cell_class(&cell)) data-name=(name) { (with_code(&cell)) }
            } @else { td.empty {} } }
        } } }
    } }
}

/// Content that a click unfolds.
pub(super) fn folded(summary: &str, body: Markup) -> Markup {
    maud::html! { details { summary { (summary) } (body) } }
}

/// A list of names and values, in two columns.
pub(super) fn facts<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Markup {
    maud::html! { dl { @for (name, text) in pairs {
        div { dt { (name) } dd { (with_code(&text)) } }
    } } }
}
