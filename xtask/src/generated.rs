// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections of hand-written pages that a command fills in.

use anyhow::{Context, Result};

/// Replaces what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
pub(crate) fn replace_section(page: &str, name: &str, content: &str) -> Result<String> {
    let begin = format!("<!-- {name}:begin -->");
    let end = format!("<!-- {name}:end -->");
    let (head, rest) = page
        .split_once(&begin)
        .with_context(|| format!("the page has no `{begin}`"))?;
    let (_, tail) = rest
        .split_once(&end)
        .with_context(|| format!("the page has no `{end}`"))?;
    Ok(format!(
        "{head}{begin}\n{}\n{end}{tail}",
        content.trim_end()
    ))
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
        assert!(replace_section(page, "y", "new").is_err());
    }
}
