// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask docs`: writes the pages, and sections of pages, that come from
//! tables in the code, and checks the ids of facts ([`evidence`]) and links ([`links`]).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::generated::replace_section;
use crate::{
    architecture, evidence, links, offload, pages, paths, pictures, plans, precisions,
    quantisation, timing,
};

/// Options of `cargo xtask docs`.
#[derive(clap::Args, Debug)]
pub(crate) struct DocsArgs {
    /// Change nothing; fail if a page is not what would be written
    #[arg(long)]
    check: bool,
}

/// Writes or checks docs/registers.md, docs/rules.md and the tables of other
/// pages.
pub(crate) fn run(args: &DocsArgs) -> Result<()> {
    page(args, "docs/registers.md", &pages::registers::markdown())?;
    page(args, "docs/rules.md", &pages::rules::markdown())?;

    page(args, architecture::PICTURE, &architecture::svg()?)?;
    for (picture, svg) in pictures::all()? {
        page(args, picture, &svg)?;
    }
    section(
        args,
        architecture::PAGE,
        architecture::SECTION,
        &architecture::markdown()?,
    )?;
    section(
        args,
        "docs/timing.md",
        timing::SECTION,
        &timing::markdown()?,
    )?;
    section(
        args,
        "docs/matmul-figures.md",
        plans::SECTION,
        &plans::markdown()?,
    )?;
    let expected = plans::expected::markdown()?;
    for page in plans::expected::PAGES {
        section(args, page, plans::expected::SECTION, &expected)?;
    }
    section(
        args,
        "docs/regcmd.md",
        precisions::SECTION,
        &precisions::markdown()?,
    )?;
    section(
        args,
        "docs/quantisation.md",
        quantisation::SECTION,
        &quantisation::markdown()?,
    )?;
    for (name, table) in [
        (offload::SPEED, offload::speed()?),
        (offload::MEMORY, offload::memory()?),
        (offload::SEQUENCES, offload::sequences()?),
    ] {
        // A blank line, without which Markdown takes a table for text.
        section(args, offload::PAGE, name, &format!("\n{table}"))?;
    }
    evidence::check()?;
    links::check()
}

/// Writes or checks a page, or a picture.
fn page(args: &DocsArgs, page: &str, wanted: &str) -> Result<()> {
    let page = paths::root().join(page);
    let present = fs::read_to_string(&page).unwrap_or_default();
    write(args, &page, &present, wanted)
}

/// Writes or checks a section of a page.
fn section(args: &DocsArgs, page: &str, name: &str, content: &str) -> Result<()> {
    let page = paths::root().join(page);
    let present = paths::text(&page)?;
    write(
        args,
        &page,
        &present,
        &replace_section(&present, name, content)?,
    )
}

fn write(args: &DocsArgs, path: &Path, present: &str, wanted: &str) -> Result<()> {
    if args.check {
        if present != wanted {
            bail!(
                "{} is not what the code says; run `cargo xtask docs`",
                path.display()
            );
        }
        println!("{} is current", path.display());
        return Ok(());
    }
    fs::write(path, wanted).with_context(|| format!("writing {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
