// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts from files, made safe to show, since files are not trusted.

use std::fmt;

use maud::{Markup, PreEscaped, Render};
use serde::{Deserialize, Deserializer};

/// Most characters of a text that is shown.
const MOST_SHOWN: usize = 300;

/// A text from a file: cut if it is too long; escaped when it is rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShownText(String);

impl From<&str> for ShownText {
    fn from(text: &str) -> Self {
        let mut shown: String = text.chars().take(MOST_SHOWN).map(shown_char).collect();
        if shown.len() < text.len() && text.chars().nth(MOST_SHOWN).is_some() {
            shown.push_str("...");
        }
        Self(shown)
    }
}

/// Replaces characters that XML forbids or that change the direction of text.
fn shown_char(c: char) -> char {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns || matches!(c, '\u{fffe}' | '\u{ffff}') {
        '\u{fffd}'
    } else {
        c
    }
}

impl<'de> Deserialize<'de> for ShownText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from(&*text))
    }
}

impl std::ops::Deref for ShownText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShownText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Render for ShownText {
    fn render_to(&self, buffer: &mut String) {
        self.0.as_str().render_to(buffer);
    }
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
pub(super) fn with_code(text: &ShownText) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    maud::html! { @for (index, part) in parts.iter().enumerate() {
        @if index % 2 == 1 { code { (part) } } @else { (part) }
    } }
}

pub(super) struct TableCell {
    is_number: bool,
    text: ShownText,
}

impl TableCell {
    /// Style of the cell: names and short words stay on one line, sentences wrap.
    fn class(&self) -> &'static str {
        const SHORT: usize = 22;
        const LONG: usize = 36;
        match self.text.chars().count() {
            _ if self.is_number => "number",
            0..=SHORT => "short",
            LONG.. => "long",
            _ => "",
        }
    }
}

impl From<f64> for TableCell {
    fn from(value: f64) -> Self {
        Some(value).into()
    }
}

impl From<usize> for TableCell {
    fn from(value: usize) -> Self {
        Self::from(value as f64)
    }
}

impl From<Option<f64>> for TableCell {
    fn from(value: Option<f64>) -> Self {
        Self {
            is_number: true,
            text: ShownText::from(&*value.map_or_else(|| "-".to_owned(), number)),
        }
    }
}

impl From<&str> for TableCell {
    fn from(text: &str) -> Self {
        Self {
            is_number: false,
            text: ShownText::from(text),
        }
    }
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

/// Most rows of a table.
const MOST_ROWS: usize = 500;

/// A table, which scrolls horizontally on narrow screens.
pub(super) fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl ExactSizeIterator<Item = [TableCell; COLUMNS]>,
) -> Markup {
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    let mut rows = rows.take(MOST_ROWS).peekable();
    let numbers = rows
        .peek()
        .map(|row| row.each_ref().map(|cell| cell.is_number));
    let numbers = numbers.unwrap_or([false; COLUMNS]);
    maud::html! {
        div.scroll tabindex="0" { table {
            thead { tr { @for (name, is_number) in head.into_iter().zip(numbers) {
                th scope="col" class=(if is_number { "number" } else { "" }) { (name) }
            } } }
            tbody { @for row in rows { tr { @for cell in row {
                td class=(cell.class()) { (with_code(&cell.text)) }
            } } } }
        } }
        @if left_out > 0 { p.note { (left_out) " more rows are left out." } }
    }
}

/// A table whose rows become blocks on narrow screens; each row has a class.
pub(super) fn blocks<'a, const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl Iterator<Item = (&'a str, [TableCell; COLUMNS])>,
) -> Markup {
    maud::html! { table.blocks {
        thead { tr { @for name in head { th scope="col" { (name) } } } }
        tbody { @for (class, cells) in rows.take(MOST_ROWS) { tr.(class) {
            @for (name, cell) in head.into_iter().zip(cells) { @if !cell.text.is_empty() {
                td class=(cell.class()) data-name=(name) { (with_code(&cell.text)) }
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
        div { dt { (name) } dd { (with_code(&ShownText::from(&*text))) } }
    } } }
}

/// Markup from this program, which needs no escaping.
pub(super) const fn own(markup: &'static str) -> PreEscaped<&'static str> {
    PreEscaped(markup)
}
