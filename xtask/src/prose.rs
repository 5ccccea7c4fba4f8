// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that pages of docs/ are short, and that the pages use the words of the glossary.

use std::collections::BTreeMap;

use crate::paths;

/// Most words of a page, without tables and code.
const PAGE_WORDS: usize = 1000;

/// Most words of all pages, without tables and code.
const ALL_WORDS: usize = 35_000;

/// Most rows of the glossary: readers should not need more.
const GLOSSARY_ROWS: usize = 25;

/// The pages of docs/ by file name.
fn pages() -> BTreeMap<String, String> {
    let files = paths::files(&paths::root().join("docs"), &["md"]).unwrap();
    let named = |file: std::path::PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (name, paths::text(&file).unwrap())
    };
    files.into_iter().map(named).collect()
}

/// Number of words outside tables and code blocks, fenced or indented.
fn words(page: &str) -> usize {
    let mut in_code = false;
    let mut count = 0;
    for line in page.lines() {
        let text = line.trim_start();
        if text.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !text.starts_with('|') && !line.starts_with("    ") {
            count += text.split_whitespace().count();
        }
    }
    count
}

#[test]
fn words_are_counted_outside_of_tables_and_code() {
    let page = "# A title\n| a | b |\n```sh\nls -l\n```\n\n    cargo test\n- two words\n";
    assert_eq!(words(page), 6);
}

#[test]
fn pages_are_short() {
    let mut all = 0;
    for (name, page) in pages() {
        let words = words(&page);
        assert!(
            words <= PAGE_WORDS,
            "docs/{name} has {words} words, more than {PAGE_WORDS}: shorten or split it"
        );
        all += words;
    }
    assert!(
        all <= ALL_WORDS,
        "docs/ has {all} words, more than {ALL_WORDS}: shorten it"
    );
}

#[test]
fn the_glossary_has_words_of_other_pages() {
    let mut pages = pages();
    let glossary = pages.remove("glossary.md").unwrap();
    let pages = pages.into_values().collect::<String>().to_lowercase();
    let pages = pages.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows = glossary.lines().filter(|line| line.starts_with("| **"));
    assert!((1..=GLOSSARY_ROWS).contains(&rows.clone().count()));
    // A row explains the words in bold.
    for row in rows {
        for word in row.split("**").skip(1).step_by(2) {
            let used = pages.contains(&word.to_lowercase());
            assert!(used, "no page uses `{word}` of docs/glossary.md");
        }
    }
}
