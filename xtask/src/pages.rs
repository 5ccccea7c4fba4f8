// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of docs/: files, and those that are made when they are needed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rknpu_regcmd::pages;

use crate::paths;

/// Returns the text of a page, for `""`.
type Writer = fn(&str) -> Option<String>;

/// Pages that no file has, with what writes them.
const GENERATED: [(&str, Writer); 2] = [
    ("registers.md", pages::registers),
    ("rules.md", pages::rules),
];

/// The pages that no file has, each with the path that it would have.
pub(crate) fn generated() -> impl Iterator<Item = (PathBuf, String)> {
    let docs = paths::root().join("docs");
    GENERATED
        .into_iter()
        .filter_map(move |(name, write)| Some((docs.join(name), write("")?)))
}

/// The files of docs/ with one of these extensions, and the generated pages.
pub(crate) fn all(extensions: &[&str]) -> Result<Vec<(PathBuf, String)>> {
    let files = paths::files(&paths::root().join("docs"), extensions)?;
    let texts = files.into_iter().map(|file| {
        let text = paths::text(&file)?;
        Ok((file, text))
    });
    texts.chain(generated().map(Ok)).collect()
}

/// The text of a page, which may be generated.
pub(crate) fn text(page: &Path) -> Result<String> {
    let docs = Path::new("docs");
    let of_page = GENERATED
        .into_iter()
        .find(|(name, _)| page.ends_with(docs.join(name)));
    match of_page.and_then(|(_, write)| write("")) {
        Some(text) => Ok(text),
        None => paths::text(page),
    }
}
