// SPDX-License-Identifier: MIT OR Apache-2.0
//! Markdown tables, and generated sections of hand-written pages.

use anyhow::{Context, Result};

/// A table of these rows. Cells of heads and rows are separated by ` | `.
pub(crate) fn table(heads: &str, rows: impl IntoIterator<Item = String>) -> String {
    let rule = "---|".repeat(heads.split(" | ").count());
    let rows = rows.into_iter().map(|row| format!("| {row} |\n"));
    format!("| {heads} |\n|{rule}\n") + &rows.collect::<String>()
}

/// Replaces the text between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
pub(crate) fn replace_section(page: &str, name: &str, content: &str) -> Result<String> {
    let [head, _, tail] = parts(page, name)?;
    Ok(format!("{head}\n{}\n{tail}", content.trim_end()))
}

/// Content of the generated section `name` of `page`.
pub(crate) fn section<'a>(page: &'a str, name: &str) -> Result<&'a str> {
    parts(page, name).map(|[_, content, _]| content)
}

/// The text of a page up to a section, in it, and from its end on.
fn parts<'a>(page: &'a str, name: &str) -> Result<[&'a str; 3]> {
    let [begin, end] = ["begin", "end"].map(|mark| format!("<!-- {name}:{mark} -->"));
    let place = |mark: &str| {
        page.find(mark)
            .with_context(|| format!("the page has no `{mark}`"))
    };
    let (start, end) = (place(&begin)? + begin.len(), place(&end)?);
    let content = page
        .get(start..end)
        .context("a section ends before it begins")?;
    Ok([&page[..start], content, &page[end..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_section_changes() {
        let page = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let new = "a\n<!-- x:begin -->\n| a | b |\n|---|---|\n| 1 | 2 |\n<!-- x:end -->\nb\n";
        let table = table("a | b", ["1 | 2".to_owned()]);
        assert_eq!(replace_section(page, "x", &table).unwrap(), new);
        assert_eq!(section(page, "x").unwrap(), "\nold\n");
        assert!(replace_section(page, "y", "new").is_err());
    }
}
