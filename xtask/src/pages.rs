// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of docs/: files, and those that are made when they are needed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rknpu_regcmd::pages;

use crate::paths;

/// Returns the text of a page, for `""`.
type Writer = fn(&str) -> Option<String>;

/// Pages that no file has: name, title, the page before it in a table of contents, what writes it.
const GENERATED: [(&str, &str, &str, Writer); 2] = [
    ("registers.md", "Registers", "regcmd.md", pages::registers),
    ("rules.md", "Rules", "chip.md", pages::rules),
];

/// The pages that no file has, each with the path that it would have.
pub(crate) fn generated() -> impl Iterator<Item = (PathBuf, String)> {
    let docs = paths::root().join("docs");
    GENERATED
        .into_iter()
        .filter_map(move |(name, _, _, write)| Some((docs.join(name), write("")?)))
}

/// The files of docs/ with one of these extensions, and the generated pages.
pub(crate) fn all(extensions: &[&str]) -> Result<Vec<(PathBuf, String)>> {
    let files = paths::files(&paths::root().join("docs"), extensions)?;
    let texts = files.into_iter().map(|file| {
        let text = if file.ends_with("SUMMARY.md") {
            contents()?
        } else {
            paths::text(&file)?
        };
        Ok((file, text))
    });
    texts.chain(generated().map(Ok)).collect()
}

/// The table of contents of docs/, with the generated pages, which docs/SUMMARY.md does not list
/// since a link to them leads nowhere in the sources.
pub(crate) fn contents() -> Result<String> {
    let contents = paths::text(&paths::root().join("docs/SUMMARY.md"))?;
    let with = GENERATED.into_iter().fold(contents, with_page);
    Ok(with)
}

fn with_page(contents: String, (name, title, before, _): (&str, &str, &str, Writer)) -> String {
    let end = format!("]({before})\n");
    contents.replacen(&end, &format!("{end}  - [{title}]({name})\n"), 1)
}

/// The text of a page, which may be generated.
pub(crate) fn text(page: &Path) -> Result<String> {
    let docs = Path::new("docs");
    let generated = GENERATED
        .into_iter()
        .find(|(name, ..)| page.ends_with(docs.join(name)));
    match generated.and_then(|(_, _, _, write)| write("")) {
        Some(text) => Ok(text),
        None => paths::text(page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_contents_has_generated_pages_in_their_places() {
        let contents = contents().unwrap();
        for (name, title, before, _) in GENERATED {
            let lines = format!("]({before})\n  - [{title}]({name})\n");
            assert!(contents.contains(&lines), "{contents}");
        }
    }
}
