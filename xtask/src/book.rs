// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask book`: docs/ as a book for browsers, and whether its links lead
//! somewhere.
//!
//! The book is made beside docs/, so that links from pages to sources lead to the
//! sources of this work tree.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::paths;

/// The version of mdBook that docs/book.toml is written for.
const VERSION: &str = "0.5.4";

/// Makes the book, and checks it.
pub(crate) fn run() -> Result<()> {
    let tools = paths::target().join("tools");
    let mut install = Command::new("cargo");
    // Does nothing where that version is there already. Without optimisation, which
    // would take longer than its work.
    install
        .args(["install", "--quiet", "--debug", "--locked", "mdbook"])
        .args(["--version", VERSION, "--no-default-features"])
        .args(["--features", "search", "--root"])
        .arg(&tools);
    done(&mut install)?;
    let mut build = Command::new(tools.join("bin/mdbook"));
    done(build.arg("build").arg(paths::root().join("docs")))?;

    let book = paths::root().join("book");
    let mut lost = Vec::new();
    let mut count = 0;
    for page in paths::files(&book, &["html"])? {
        let text = mended(&page, &paths::text(&page)?);
        for link in links(&text) {
            count += 1;
            if !leads_somewhere(&page, &text, link)? {
                lost.push(format!("{}: {link} leads nowhere", page.display()));
            }
        }
        fs::write(&page, text).with_context(|| format!("writing {}", page.display()))?;
    }
    if !lost.is_empty() {
        bail!("{}", lost.join("\n"));
    }
    println!(
        "{count} links of {} lead somewhere",
        book.join("index.html").display()
    );
    Ok(())
}

fn done(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// A page whose links to Markdown outside of docs/ lead there: mdBook takes all
/// Markdown for pages of the book.
fn mended(page: &Path, text: &str) -> String {
    let outside: Vec<&str> = links(text)
        .filter(|link| link.starts_with("../") && link.ends_with(".html"))
        .filter(|link| !page.with_file_name(link).exists())
        .collect();
    outside.iter().fold(text.to_owned(), |text, link| {
        let markdown = link.trim_end_matches("html").to_owned() + "md";
        text.replace(&format!("\"{link}\""), &format!("\"{markdown}\""))
    })
}

/// What links and pictures of a page name within the work tree.
fn links(text: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\""].into_iter().flat_map(move |name| {
        let rest = text.split(name).skip(1);
        rest.filter_map(|rest| rest.split('"').next())
            .filter(|link| !link.contains(':') && !link.starts_with('/'))
    })
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> Result<bool> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = page.with_file_name(path);
    if !path.is_empty() && !target.exists() {
        return Ok(false);
    }
    let id = format!("id=\"{anchor}\"");
    Ok(match (anchor, path) {
        ("", _) => true,
        (_, "") => text.contains(&id),
        _ => paths::text(&target)?.contains(&id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_of_the_tree() {
        let text = r##"<a href="a.html#x"> <img src="b.svg"> <a href="https://c"> <a href="/d">"##;
        assert_eq!(links(text).collect::<Vec<_>>(), ["a.html#x", "b.svg"]);
    }

    #[test]
    fn markdown_outside_is_no_page_of_the_book() {
        let page = paths::root().join("docs/page.html");
        let text = r##"<a href="../README.html"> <a href="other.html">"##;
        let mended = mended(&page, text);
        assert_eq!(mended, r##"<a href="../README.md"> <a href="other.html">"##);
        assert!(leads_somewhere(&page, &mended, "../README.md").unwrap());
        assert!(!leads_somewhere(&page, &mended, "../README.html").unwrap());
        assert!(!leads_somewhere(&page, &mended, "#nowhere").unwrap());
    }
}
