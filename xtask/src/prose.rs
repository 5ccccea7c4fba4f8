// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that pages of docs/ are short.

use std::collections::BTreeMap;

use crate::paths;

/// Most words of a page, without tables and code.
const PAGE_WORDS: usize = 1000;

/// Most words of all pages, without tables and code.
const ALL_WORDS: usize = 35_000;

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
