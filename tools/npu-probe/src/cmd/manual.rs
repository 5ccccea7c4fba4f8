// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes man pages and shell completions, for packages.

use std::io;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::base::exit::{Failure, Verdict};
use crate::cmd::command_line::Flags;

/// Writes the files into `folder`, with their installed names.
pub(crate) fn run(folder: &Path) -> Result<Verdict, Failure> {
    write(folder).map_err(Failure::output(format!(
        "writing into {}",
        folder.display()
    )))?;
    Ok(Verdict::Pass)
}

fn write(folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Flags::command(), folder)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut Flags::command(), "npu-probe", folder)?;
    }
    Ok(())
}
