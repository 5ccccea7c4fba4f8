// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask book`: makes README and docs/ a book for browsers.
//!
//! The book is made beside docs/, so that links from pages to sources lead to the sources of this
//! work tree. `cargo xtask docs --check` checks the links.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::run_checked;
use crate::{pages, paths};

/// The version of mdBook that docs/book.toml is written for.
const VERSION: &str = "0.5.4";

/// The book's first page, which is README.
const FIRST: &str = "index.md";

/// Makes the book.
pub(crate) fn run() -> Result<()> {
    let tools = paths::target().join("tools");
    let mut install = Command::new("cargo");
    // Does nothing if that version is installed. Without optimisation, which would take longer than
    // it saves.
    install
        .args(["install", "--quiet", "--debug", "--locked", "mdbook"])
        .args(["--version", VERSION, "--no-default-features"])
        .args(["--features", "search", "--root"])
        .arg(&tools);
    run_checked(&mut install)?;
    let pages = std::path::absolute(paths::target().join("book"))?;
    let _ = fs::remove_dir_all(&pages);
    fs::create_dir_all(&pages).context("making a directory")?;
    write_pages(&pages)?;
    let book = paths::root().join("book");
    run_checked(
        Command::new(tools.join("bin/mdbook"))
            .arg("build")
            .arg(&pages)
            .arg("--dest-dir")
            .arg(&book),
    )?;
    // mdBook treats all Markdown as pages of the book, but files outside docs/ are not in it.
    let mut fix_links = Command::new("sh");
    fix_links.args([
        "-c",
        r#"sed -i -E 's|"(\.\./[^":]*)\.html|"\1.md|g' *.html"#,
    ]);
    run_checked(fix_links.current_dir(&book))?;
    println!("wrote {}", book.join("index.html").display());
    Ok(())
}

/// Writes the pages as the book has them, with README as the first.
fn write_pages(folder: &Path) -> Result<()> {
    let summary = pages::contents()?;
    let titles = titles(&summary);
    let write = |name: &str, text: String| {
        fs::write(folder.join(name), text).with_context(|| format!("writing {name}"))
    };
    for (page, text) in pages::all(&["md", "svg", "toml"])? {
        let name = page.file_name().context("a page without a name")?;
        let name = name.to_string_lossy();
        let is_page = name.ends_with(".md") && name != "SUMMARY.md";
        write(
            &name,
            if is_page {
                titled(&text, &titles)
            } else {
                text
            },
        )?;
    }
    let readme = paths::text(&paths::root().join("README.md"))?;
    write(FIRST, titled(&of_root(&readme), &titles))?;
    let first = format!("# Summary\n\n[What this is]({FIRST})\n");
    write("SUMMARY.md", summary.replacen("# Summary\n", &first, 1))
}

/// The pages of a table of contents, each with its title.
fn titles(summary: &str) -> Vec<(&str, &str)> {
    let entries = summary.lines().filter_map(|line| {
        let (_, entry) = line.split_once("- [")?;
        let (title, page) = entry.split_once("](")?;
        Some((page.strip_suffix(')')?, title))
    });
    entries.collect()
}

/// A page whose links have the titles of pages as their texts, instead of file names.
fn titled(page: &str, titles: &[(&str, &str)]) -> String {
    let mut text = page.to_owned();
    for (file, title) in titles {
        text = text.replace(&format!("[{file}]("), &format!("[{title}]("));
    }
    text
}

/// A page of the root directory for a place in docs/.
fn of_root(page: &str) -> String {
    let mut parts = page.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += "](";
        let stays = part.starts_with('#') || part.starts_with("http");
        let in_docs = part.strip_prefix("docs/");
        text += if stays || in_docs.is_some() {
            ""
        } else {
            "../"
        };
        text += in_docs.unwrap_or(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_the_titles_of_pages() {
        let titles = titles("# Use\n- [Boards and kernels](boards.md)\n  - [Speed](speed.md)\n");
        assert_eq!(
            titled(
                "see [boards.md](boards.md#memory), [the speed](speed.md).",
                &titles
            ),
            "see [Boards and kernels](boards.md#memory), [the speed](speed.md)."
        );
    }

    #[test]
    fn links_of_the_readme_lead_to_pages_and_sources() {
        assert_eq!(
            of_root("[a](docs/model.md) [c](crates/d.rs) [e](#f) [g](https://h.i)"),
            "[a](model.md) [c](../crates/d.rs) [e](#f) [g](https://h.i)"
        );
    }
}
