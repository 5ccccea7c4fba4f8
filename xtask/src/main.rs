// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's build and test tasks: `cargo xtask COMMAND`.

mod abi;
mod arch;
mod book;
mod build;
mod ci;
mod clean;
mod debian;
mod dist;
mod docs;
mod fresh;
mod generated;
mod links;
mod llama;
#[cfg(test)]
mod manifests;
mod offload;
mod pages;
mod paths;
mod plans;
mod played;
mod precisions;
mod process;
#[cfg(test)]
mod prose;
mod python;
mod quantisation;
mod teflon;
mod timing;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's build and test tasks
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run every check that must pass before a change is merged
    Ci(ci::CiArgs),
    /// Run README's commands in a Debian that has only what README asks for
    Fresh,
    /// Build Debian packages, and an archive of programs for any aarch64 Linux
    Dist(dist::DistArgs),
    /// Write the generated sections of pages, and check links
    Docs(docs::DocsArgs),
    /// Build README and docs/ as a book for browsers
    Book,
    /// Have stock llama.cpp continue a story with the NPU and without
    Demo(llama::LlamaArgs),
    /// Run stock llama.cpp with the backend on the model and compare
    Llama(llama::CheckArgs),
    /// Run Mesa's Teflon delegate on the model and compare
    Teflon(teflon::TeflonArgs),
    /// Run programs on the real driver, in a virtual machine
    #[command(subcommand)]
    Vm(vm::VmCommand),
    /// Compare our structs with those of the newest kernel header
    Abi,
}

fn main() -> ExitCode {
    let Err(error) = run() else {
        return ExitCode::SUCCESS;
    };
    if let Some(ended) = error.downcast_ref::<vm::ProgramFailed>() {
        return ended.code();
    }
    // Without a backtrace, which would hide the failure above it.
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn run() -> Result<()> {
    match Arguments::parse().command {
        Command::Ci(arguments) => ci::run(&arguments),
        Command::Fresh => fresh::run(),
        Command::Dist(arguments) => dist::run(&arguments),
        Command::Docs(arguments) => docs::run(&arguments),
        Command::Book => book::run(),
        Command::Demo(arguments) => llama::demo(&arguments),
        Command::Llama(arguments) => llama::run(&arguments),
        Command::Teflon(arguments) => teflon::run(&arguments),
        Command::Vm(command) => vm::run(&command),
        Command::Abi => abi::run(),
    }
}
