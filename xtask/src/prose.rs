// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that pages are short. Every word counts, those of tables and code too.

use std::collections::BTreeMap;

use crate::paths;

/// Most words of a page.
const PAGE_WORDS: usize = 2600;

/// Most words of the table of facts.
const EVIDENCE_WORDS: usize = 3900;

/// Most words of all pages.
const ALL_WORDS: usize = 42_000;

/// Most words of all Markdown files outside docs/.
const OTHER_WORDS: usize = 5500;

/// The number of words of each page of docs/.
fn pages() -> BTreeMap<String, usize> {
    let files = paths::files(&paths::root().join("docs"), &["md"]).unwrap();
    let counted = |file: std::path::PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let words = paths::text(&file).unwrap().split_whitespace().count();
        (name, words)
    };
    files.into_iter().map(counted).collect()
}

#[test]
fn pages_are_short() {
    let pages = pages();
    for (name, &words) in &pages {
        let most = if name == "evidence.md" {
            EVIDENCE_WORDS
        } else {
            PAGE_WORDS
        };
        assert!(
            words <= most,
            "docs/{name} has {words} words, more than {most}: shorten or split it"
        );
    }
    let all: usize = pages.values().sum();
    assert!(
        all <= ALL_WORDS,
        "docs/ has {all} words, more than {ALL_WORDS}: shorten it"
    );
}

#[test]
fn other_files_are_short() {
    let docs = paths::root().join("docs");
    let files = paths::files(paths::root(), &["md"]).unwrap();
    let others = files.iter().filter(|file| !file.starts_with(&docs));
    let words: usize = others
        .map(|file| paths::text(file).unwrap().split_whitespace().count())
        .sum();
    assert!(
        words <= OTHER_WORDS,
        "Markdown files outside docs/ have {words} words, more than {OTHER_WORDS}: shorten them"
    );
}
