// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ids of docs/evidence.md: each that is cited is there, once, and each that
//! is there is cited.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::paths;

/// The page with the table of facts.
const PAGE: &str = "docs/evidence.md";
/// Where they are cited: pages, sources and what belongs to them.
const ROOTS: [&str; 7] = [
    "README.md",
    "docs",
    "crates",
    "tests",
    "tools",
    "xtask/src",
    "fuzz",
];

/// Compares the page with what cites it.
pub(crate) fn check() -> Result<()> {
    let root = paths::root();
    let page = paths::text(&root.join(PAGE))?;
    let mut citing = String::new();
    for place in ROOTS {
        for file in paths::files(&root.join(place), &["rs", "md"])? {
            // This file's own tests have ids of no fact.
            if !file.ends_with(PAGE) && !file.ends_with(file!()) {
                citing.push_str(&paths::text(&file)?);
                citing.push('\n');
            }
        }
    }
    let complaints = complaints(&page, &citing);
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n"));
    }
    println!("{PAGE} has what is cited, and no more");
    Ok(())
}

/// What does not agree, a line each.
fn complaints(page: &str, citing: &str) -> Vec<String> {
    let mut facts = BTreeMap::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| E-")) {
        let id = format!("E-{}", row.split(' ').next().unwrap_or_default());
        *facts.entry(id).or_insert(0) += 1;
    }
    let mut complaints = Vec::new();
    for (id, times) in &facts {
        if *times > 1 {
            complaints.push(format!("{PAGE} has {id} {times} times"));
        }
    }
    // A fact may name another; that does not make it one that somebody needs.
    let cited: Vec<&str> = ids(citing).collect();
    for id in cited.iter().copied().chain(ids(page)) {
        if !facts.contains_key(id) {
            complaints.push(format!("{id} is cited, and {PAGE} has no such fact"));
        }
    }
    for id in facts.keys().filter(|id| !cited.contains(&id.as_str())) {
        complaints.push(format!("{PAGE} has {id}, which nobody cites"));
    }
    complaints.sort();
    complaints.dedup();
    complaints
}

/// The ids in a text: `E-`, and words of small letters and digits with hyphens.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("E-").filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_') {
            return None;
        }
        let name = &text[at + 2..];
        let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let end = name.find(|c| !part(c)).unwrap_or(name.len());
        let name = name[..end].trim_end_matches('-');
        name.starts_with(|c: char| c.is_ascii_lowercase())
            .then(|| &text[at..at + 2 + name.len()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| id | what |\n|---|---|\n| E-atom | 16 bytes |\n| E-m4 | as E-atom |\n";

    #[test]
    fn the_tree_agrees() {
        check().unwrap();
    }

    #[test]
    fn ids_are_words_of_their_own() {
        let text = "(E-atom), E-m4-x- 1E-5 SIZE-E-atom E-Atom E-9 `E-end`";
        assert_eq!(ids(text).collect::<Vec<_>>(), ["E-atom", "E-m4-x", "E-end"]);
    }

    #[test]
    fn what_is_cited_is_there_and_the_reverse() {
        assert_eq!(complaints(PAGE, "E-atom E-m4 E-m4"), [""; 0]);
        let lost = complaints(PAGE, "E-atom E-m4 E-m5");
        assert_eq!(
            lost,
            ["E-m5 is cited, and docs/evidence.md has no such fact"]
        );
        let idle = complaints(PAGE, "E-m4");
        assert_eq!(idle, ["docs/evidence.md has E-atom, which nobody cites"]);
        let twice = complaints(&PAGE.replace("E-m4", "E-atom"), "E-atom");
        assert_eq!(twice, ["docs/evidence.md has E-atom 2 times"]);
    }
}
