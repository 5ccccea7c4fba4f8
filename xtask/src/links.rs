// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of the pages: what they lead to is there, and the table of contents leads to
//! all pages.

use std::path::Path;

use anyhow::{Result, bail};

use crate::paths;

/// The table of contents.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Follows every relative link of the pages.
pub(crate) fn check() -> Result<()> {
    let mut lost = missing_pages()?;
    let mut count = 0;
    for page in paths::files(paths::root(), &["md"])? {
        let text = paths::text(&page)?;
        for link in links(&text) {
            count += 1;
            if !leads_somewhere(&page, &text, link)? {
                lost.push(format!("{}: {link} leads nowhere", page.display()));
            }
        }
    }
    if !lost.is_empty() {
        bail!("{}", lost.join("\n"));
    }
    println!("{count} links of the pages lead somewhere");
    Ok(())
}

/// Pages that the table of contents leaves out, a line each.
fn missing_pages() -> Result<Vec<String>> {
    let contents = paths::root().join(CONTENTS);
    let text = paths::text(&contents)?;
    let listed: Vec<_> = links(&text)
        .map(|link| contents.with_file_name(link))
        .collect();
    let pages = paths::files(&paths::root().join("docs"), &["md"])?;
    Ok(pages
        .iter()
        .filter(|page| **page != contents && !listed.contains(page))
        .map(|page| format!("{CONTENTS} has no {}", page.display()))
        .collect())
}

/// Targets of links and pictures within the tree.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> Result<bool> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = page.with_file_name(path);
    if !path.is_empty() && !target.exists() {
        return Ok(false);
    }
    if anchor.is_empty() {
        return Ok(true);
    }
    let has = |text: &str| headings(text).any(|heading| anchor_of(heading) == anchor);
    Ok(if path.is_empty() {
        has(text)
    } else {
        has(&paths::text(&target)?)
    })
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    let hashes =
        |line: &str| line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
    text.lines()
        .filter(move |line| hashes(line))
        .map(|line| line.trim_start_matches('#').trim())
}

/// The anchor that a heading gets: small letters, hyphens for spaces, no other signs.
fn anchor_of(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_what_its_links_lead_to() {
        check().unwrap();
    }

    #[test]
    fn links_are_followed() {
        let page = paths::root().join("docs/uapi.md");
        let text =
            "# Did it run?\n[a](uapi.md) [b](#did-it-run) [c](https://x.y) [d](#no) [e](no.md)";
        let found: Vec<_> = links(text).collect();
        assert_eq!(found, ["uapi.md", "#did-it-run", "#no", "no.md"]);
        let there = found
            .iter()
            .map(|link| leads_somewhere(&page, text, link).unwrap());
        assert_eq!(there.collect::<Vec<_>>(), [true, true, false, false]);
    }
}
