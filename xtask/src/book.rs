// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask book`: makes docs/ a book for browsers.
//!
//! The book is made beside docs/, so that links from pages to sources lead to the sources of this
//! work tree. `cargo xtask docs --check` checks the links.

use std::process::Command;

use anyhow::Result;

use crate::paths;
use crate::process::run_checked;

/// The version of mdBook that docs/book.toml is written for.
const VERSION: &str = "0.5.4";

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
    run_checked(
        Command::new(tools.join("bin/mdbook"))
            .arg("build")
            .arg(paths::root().join("docs")),
    )?;
    // mdBook treats all Markdown as pages of the book, but files outside docs/ are not in it.
    let mut fix_links = Command::new("sh");
    fix_links.args([
        "-c",
        r#"sed -i -E 's|"(\.\./[^":]*)\.html|"\1.md|g' *.html"#,
    ]);
    run_checked(fix_links.current_dir(paths::root().join("book")))?;
    println!("wrote {}", paths::root().join("book/index.html").display());
    Ok(())
}
