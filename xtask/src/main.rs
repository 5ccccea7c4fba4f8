// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's chores.

use clap::{Parser, Subcommand};

mod llama;

/// The project's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run stock llama.cpp with our backend loaded and check the results.
    Llama(llama::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Llama(args) => llama::run(&args),
    }
}
