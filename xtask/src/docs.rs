// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask docs`: writes the pages that come from tables in the code.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::paths;

/// Options of `cargo xtask docs`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Change nothing; fail if a page is not what would be written
    #[arg(long)]
    check: bool,
}

/// Writes or checks docs/registers.md.
pub(crate) fn run(args: &Args) -> Result<()> {
    let path = paths::root().join("docs/registers.md");
    let wanted = rknpu_regcmd::registers_markdown();
    if args.check {
        let present = fs::read_to_string(&path).unwrap_or_default();
        if present != wanted {
            bail!(
                "{} is not what the register table says; run `cargo xtask docs`",
                path.display()
            );
        }
        println!("{} is current", path.display());
        return Ok(());
    }
    fs::write(&path, wanted).with_context(|| format!("writing {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
