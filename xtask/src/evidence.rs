// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ids of docs/evidence.md: each that is cited is there, once, and each that
//! is there is cited.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

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
    let page = paths::text(&paths::root().join(PAGE))?;
    let mut citing = String::new();
    for place in ROOTS {
        for file in paths::files(&paths::root().join(place), &["rs", "md"])? {
            // This file's own tests have ids of no fact.
            if !file.ends_with(PAGE) && !file.ends_with(file!()) {
                citing += &paths::text(&file)?;
                citing.push('\n');
            }
        }
    }
    let complaints = complaints(&page, &citing);
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// What does not agree, a line each.
fn complaints(page: &str, citing: &str) -> Vec<String> {
    let mut facts = BTreeMap::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")) {
        if let Some(id) = ids(row).next().filter(|id| row.starts_with(id)) {
            *facts.entry(id).or_insert(0) += 1;
        }
    }
    // A fact may name another; that does not make it one that somebody needs.
    let cited: BTreeSet<&str> = ids(citing).collect();
    let lost = ids(page)
        .chain(cited.iter().copied())
        .collect::<BTreeSet<_>>();
    let lost = lost.into_iter().filter(|id| !facts.contains_key(id));
    let twice = facts.iter().filter(|(_, times)| **times > 1);
    let idle = facts.keys().filter(|id| !cited.contains(*id));
    lost.map(|id| format!("{id} is cited, and {PAGE} has no such fact"))
        .chain(twice.map(|(id, times)| format!("{PAGE} has {id} {times} times")))
        .chain(idle.map(|id| format!("{PAGE} has {id}, which nobody cites")))
        .collect()
}

/// The ids in a text: `E-`, and words of small letters and digits with hyphens.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
    words.filter_map(|word| {
        let name = word.strip_prefix("E-")?;
        let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let end = name.find(|c| !part(c)).unwrap_or(name.len());
        let name = name[..end].trim_end_matches('-');
        name.starts_with(|c: char| c.is_ascii_lowercase())
            .then(|| &word[..2 + name.len()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| id | what |\n|---|---|\n| E-atom | 16 bytes |\n| E-m4 | as E-atom |\n";

    #[test]
    fn ids_are_words_of_their_own() {
        let text = "(E-atom), E-m4-x- 1E-5 SIZE-E-atom E-Atom E-9 `E-end`";
        assert_eq!(ids(text).collect::<Vec<_>>(), ["E-atom", "E-m4-x", "E-end"]);
    }

    #[test]
    fn what_is_cited_is_there_and_the_reverse() {
        let twice = PAGE.replace("E-m4", "E-atom");
        for (page, citing, wanted) in [
            (PAGE, "E-atom E-m4 E-m4", None),
            (
                PAGE,
                "E-atom E-m4 E-m5",
                Some("E-m5 is cited, and docs/evidence.md has no such fact"),
            ),
            (
                PAGE,
                "E-m4",
                Some("docs/evidence.md has E-atom, which nobody cites"),
            ),
            (
                &twice,
                "E-atom",
                Some("docs/evidence.md has E-atom 2 times"),
            ),
        ] {
            assert_eq!(complaints(page, citing), Vec::from_iter(wanted));
        }
    }
}
