// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that links of pages and pictures have a target, that the pages exist which sources name,
//! and that the table of contents lists all pages.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::{pages, paths};

/// Extensions of the files that name pages of docs/ by their paths from the root.
const SOURCES: [&str; 7] = ["rs", "py", "c", "h", "sh", "txt", "toml"];

/// Checks every relative link, and every page that a source names.
pub(crate) fn check() -> Result<()> {
    let mut lost = Vec::new();
    let mut count = 0;
    let files = paths::files(paths::root(), &["md", "svg"])?;
    let generated = pages::generated().map(|(page, _)| page);
    for page in files.into_iter().chain(generated) {
        let text = pages::text(&page)?;
        for link in links(&text) {
            count += 1;
            if !leads_somewhere(&page, &text, link)? {
                lost.push(format!("{}: {link} is broken", page.display()));
            }
        }
        for (label, target) in labelled_links(&text) {
            if !names_target(label, target) {
                lost.push(format!("{}: {label} is not {target}", page.display()));
            }
        }
    }
    let at_root = paths::root().join("README.md");
    for source in paths::files(paths::root(), &SOURCES)? {
        let text = paths::text(&source)?;
        for page in mentions(&text) {
            count += 1;
            if !leads_somewhere(&at_root, &text, page)? {
                lost.push(format!("{}: {page} does not exist", source.display()));
            }
        }
    }
    let contents = paths::root().join("docs/SUMMARY.md");
    let text = paths::text(&contents)?;
    for page in paths::files(&paths::root().join("docs"), &["md"])? {
        if page != contents && !links(&text).any(|link| contents.with_file_name(link) == page) {
            lost.push(format!("docs/SUMMARY.md has no link to {}", page.display()));
        }
    }
    ensure!(lost.is_empty(), "{}", lost.join("\n"));
    println!("all {count} links resolve");
    Ok(())
}

/// Converts a page of docs/ for a package, which contains docs/ only: a link that leads out of
/// docs/ becomes its text.
pub(crate) fn for_package(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](../") {
        let label = before.rfind('[').unwrap_or(before.len());
        page += &before[..label];
        page += before.get(label + 1..).unwrap_or_default();
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    page + rest
}

/// Targets of links and pictures within the tree.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let attributes = text.split("href=\"").skip(1);
    let attributes = attributes.filter_map(|rest| Some(rest.split_once('"')?.0));
    labelled_links(text)
        .map(|(_, target)| target)
        .chain(attributes.filter(|target| is_in_tree(target)))
}

/// Labels and targets of the same, but for those of attributes.
fn labelled_links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = text.split("](").zip(text.split("](").skip(1));
    let links = parts.filter_map(|(before, after)| {
        let label = before.rsplit('[').next()?;
        Some((label, after.split_once(')')?.0))
    });
    links.filter(|(_, target)| is_in_tree(target))
}

fn is_in_tree(target: &str) -> bool {
    !target.contains("://") && !target.contains(char::is_whitespace)
}

/// Whether a label that ends with the name of a source ends with the target's name.
fn names_target(label: &str, target: &str) -> bool {
    let name = label.trim_matches('`').rsplit(['/', ' ']).next();
    let extension = name.and_then(|name| Some(name.rsplit_once('.')?.1));
    let is_source = extension.is_some_and(|extension| SOURCES.contains(&extension));
    !is_source || name == target.rsplit('/').next()
}

/// Pages of docs/ that a source names, with the anchors after them. The compiler checks those of
/// paths that begin elsewhere.
fn mentions(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    text.match_indices("docs/")
        .filter_map(move |(start, folder)| {
            let name = &text[start + folder.len()..];
            let anchor = name.trim_start_matches(is_name).strip_prefix(".md")?;
            let rest = match anchor.strip_prefix('#') {
                Some(anchor) => anchor.trim_start_matches(is_name),
                None => anchor,
            };
            let starts_here = !text[..start].ends_with(|c: char| is_name(c) || c == '/');
            starts_here.then(|| &text[start..text.len() - rest.len()])
        })
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> Result<bool> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = page.with_file_name(path);
    // In the sources only generated pages are beside generated ones.
    let exists = target.exists() || !page.exists() && pages::text(&target).is_ok();
    if !path.is_empty() && !exists {
        return Ok(false);
    }
    let has = |text: &str| {
        let mut headings = text.lines().filter(|line| line.starts_with('#'));
        headings.any(|heading| anchor_of(heading) == anchor)
    };
    Ok(anchor.is_empty()
        || if path.is_empty() {
            has(text)
        } else {
            has(&pages::text(&target)?)
        })
}

/// The anchor of a heading: lower case, hyphens for spaces, no other signs.
fn anchor_of(heading: &str) -> String {
    let heading = heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .replace(' ', "-");
    heading
        .chars()
        .filter(|&c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_package_lead_to_its_pages_only() {
        assert_eq!(
            for_package("see [a `b`](../c/d.rs), [e](f.md)."),
            "see a `b`, [e](f.md)."
        );
        for (page, text) in pages::all(&["md"]).unwrap() {
            let text = for_package(&text);
            for link in links(&text) {
                assert!(!link.starts_with(".."), "{}: {link}", page.display());
            }
        }
    }

    #[test]
    fn labels_that_name_a_source_name_their_target() {
        let text = "[x a.rs](../b/a.rs), [`c.rs`](d.rs), [e/f.py](f.py), [a rule](g.rs), [h.rs](i)";
        let wrong: Vec<_> = labelled_links(text)
            .filter(|(label, target)| !names_target(label, target))
            .collect();
        assert_eq!(wrong, [("`c.rs`", "d.rs"), ("h.rs", "i")]);
    }

    #[test]
    fn pages_named_by_sources_are_found() {
        let text = "// See docs/uapi.md#fences, \"docs/vm.md\", ../docs/a.md and docs/b.txt.";
        let found: Vec<_> = mentions(text).collect();
        assert_eq!(found, ["docs/uapi.md#fences", "docs/vm.md"]);
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
        let from = |page: &str, link| {
            let page = paths::root().join("docs").join(page);
            leads_somewhere(&page, text, link).unwrap()
        };
        assert!(!from("uapi.md", "rules.md"), "no file");
        assert!(from("registers.md", "rules.md#rules"));
        assert!(!from("registers.md", "rules.md#no"));
    }
}
