// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask docs`: writes the sections of pages that are generated from tables in the code,
//! and checks links ([`links`]).

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::generated::replace_section;
use crate::{links, offload, paths, plans, played, precisions, quantisation, timing};

/// Options of `cargo xtask docs`.
#[derive(clap::Args, Debug)]
pub(crate) struct DocsArgs {
    /// Change nothing; fail if a page is out of date
    #[arg(long)]
    check: bool,
}

/// Returns the text of a section.
type Writer = fn() -> Result<String>;

/// Generated sections of pages: page, section, writer.
const SECTIONS: [(&str, &str, Writer); 7] = [
    ("first.md", "boards", played::boards),
    ("timing-figures.md", "timing", timing::markdown),
    ("../README.md", "expected", plans::expected),
    ("regcmd.md", "precisions", precisions::markdown),
    ("quality.md", "schemes", quantisation::markdown),
    ("speed.md", "prompts", offload::prompts),
    ("speed.md", "shares", offload::shares),
];

/// Writes or checks all sections.
pub(crate) fn run(args: &DocsArgs) -> Result<()> {
    for (page, section, write) in SECTIONS {
        // Without a blank line Markdown reads a table as text.
        put(args, page, |present| {
            replace_section(present, section, &format!("\n{}", write()?))
        })?;
    }
    links::check()
}

/// Writes or checks a page. `wanted` makes its new text from the present one.
fn put(args: &DocsArgs, page: &str, wanted: impl Fn(&str) -> Result<String>) -> Result<()> {
    let path = paths::root().join("docs").join(page);
    let present = fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&present).with_context(|| format!("generating docs/{page}"))?;
    if args.check {
        ensure!(
            present == wanted,
            "docs/{page} is out of date; run `cargo xtask docs`"
        );
        return Ok(());
    }
    fs::write(&path, wanted).with_context(|| format!("writing docs/{page}"))
}
