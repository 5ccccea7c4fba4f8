// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask llama`: stock llama.cpp with our backend loaded.

use anyhow::Result;

/// Options of `cargo xtask llama`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Debian architecture of the stock binaries.
    #[arg(long, default_value = "amd64")]
    pub(crate) arch: String,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    anyhow::ensure!(args.arch == "amd64", "only amd64 is supported");
    Ok(())
}
