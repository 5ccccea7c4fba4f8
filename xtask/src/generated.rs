// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections of hand-written pages that a command fills in.

use anyhow::{Context, Result};

/// Replaces what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
pub(crate) fn replace_section(page: &str, name: &str, content: &str) -> Result<String> {
    let [begin, end] = marks(name);
    let [head, _, tail] = parts(page, name)?;
    Ok(format!(
        "{head}{begin}\n{}\n{end}{tail}",
        content.trim_end()
    ))
}

/// Content of the generated section `name` of `page`.
pub(crate) fn section<'a>(page: &'a str, name: &str) -> Result<&'a str> {
    let [_, content, _] = parts(page, name)?;
    Ok(content)
}

fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|mark| format!("<!-- {name}:{mark} -->"))
}

/// The text of a page before, in and behind a section.
fn parts<'a>(page: &'a str, name: &str) -> Result<[&'a str; 3]> {
    let [begin, end] = marks(name);
    let (head, rest) = page
        .split_once(&begin)
        .with_context(|| format!("the page has no `{begin}`"))?;
    let (content, tail) = rest
        .split_once(&end)
        .with_context(|| format!("the page has no `{end}`"))?;
    Ok([head, content, tail])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_section_changes() {
        let page = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        assert_eq!(
            replace_section(page, "x", "new\n").unwrap(),
            "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"
        );
        assert_eq!(section(page, "x").unwrap(), "\nold\n");
        assert!(replace_section(page, "y", "new").is_err());
    }
}
