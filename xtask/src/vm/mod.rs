// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm`: programs on the real `rocket` driver, in a virtual machine
//! whose NPU is the software chip. See docs/vm.md.

mod compile;
mod console;
mod guest;
mod initramfs;
mod kernel;
mod kills;
mod programs;
mod qemu;
mod runner;
mod shell;
mod test;

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::arch::first_missing;
pub(crate) use guest::{Guest, KernelArgs};
pub(crate) use initramfs::Initramfs;
use initramfs::pair;
use kernel::KernelStore;
use qemu::ProgramEnd;
use runner::LIMIT;
pub(crate) use runner::{GuestRunner, ProgramFailed};

#[derive(Subcommand, Debug)]
pub(crate) enum VmCommand {
    /// Fetch QEMU and build the guest's kernel, unless they are there
    Build(KernelArgs),
    /// Run one program in a guest and end as it ends
    Run(RunArgs),
    /// Run C clients, npu-probe's doctor and its self-test, each in a guest
    Programs(KernelArgs),
    /// Run the driver suite in guests of its own, and report as KTAP
    Test(test::TestArgs),
    /// Count how often a killed client makes the kernel use freed memory
    Kills(kills::KillsArgs),
    /// Run a shell in a guest
    Shell(shell::ShellArgs),
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    guest: Guest,
    /// Put a file or directory of this machine into the guest; may be repeated
    #[arg(long, value_name = "HOST:GUEST")]
    file: Vec<String>,
    /// Set a variable for the program; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Fetch a file of the guest when the program has ended; may be repeated
    #[arg(long, value_name = "GUEST:HOST")]
    out: Vec<String>,
    /// End with status 1 also if only the guest's kernel complained, of what is
    /// not in tests/hw/expected/console.txt
    #[arg(long)]
    fail_on_complaint: bool,
    /// A program of this workspace, by name, or a path in the guest; and its
    /// arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<String>,
}

/// Programs without which nothing works.
const NEEDED: [&str; 2] = ["apt-get", "dpkg-deb"];

pub(crate) fn run(command: &VmCommand) -> Result<()> {
    if let Some(missing) = first_missing(NEEDED) {
        bail!("`{missing}` is missing: this works on Debian and its descendants");
    }
    match command {
        VmCommand::Build(arguments) => {
            let kernels = KernelStore::open()?;
            runner::fetch_qemu(&kernels)?;
            let kernel = kernels.build(&arguments.recipe())?;
            println!("{}", kernel.image.display());
            Ok(())
        }
        VmCommand::Run(arguments) => run_program(arguments),
        VmCommand::Programs(arguments) => programs::run(arguments),
        VmCommand::Test(arguments) => test::run(arguments),
        VmCommand::Kills(arguments) => kills::run(arguments),
        VmCommand::Shell(arguments) => shell::run(arguments),
    }
}

/// Runs the program. Does not return if the guest's program ended.
fn run_program(arguments: &RunArgs) -> Result<()> {
    let runner = GuestRunner::prepare(&arguments.guest)?;
    let mut command = arguments.command.clone();
    let (mut files, program) = runner.files(&command[0])?;
    command[0] = program;
    for file in &arguments.file {
        let (host, guest) = pair(file, false)?;
        files.add(host.as_ref(), guest)?;
    }
    let wanted: Vec<_> = arguments.out.iter().map(|out| pair(out, true)).collect();
    let wanted = wanted.into_iter().collect::<Result<Vec<_>>>()?;
    let in_guest: Vec<&str> = wanted.iter().map(|(guest, _)| *guest).collect();
    files.want(&in_guest);
    if let Some(set) = arguments.env.iter().find(|set| !set.contains('=')) {
        bail!("`{set}` is not NAME=VALUE");
    }
    files.environment(&arguments.env);
    files.command(&command);
    let run = runner.run(files, LIMIT, false)?;
    for (place, (guest, path)) in wanted.iter().enumerate() {
        match run.files.get(place).and_then(Option::as_ref) {
            Some(file) => fs::write(path, file).with_context(|| format!("writing {path}"))?,
            None => eprintln!("the guest has no {guest}"),
        }
    }
    let (complaints, all_known) = runner.told(&run.console);
    complaints.iter().for_each(|line| eprintln!("{line}"));
    let code = match run.end {
        ProgramEnd::Exit(code) => code,
        ProgramEnd::Signal(signal) => {
            eprintln!("{} ended by signal {signal}", arguments.command[0]);
            SIGNALLED + signal
        }
        ProgramEnd::Failed(ref why) => {
            bail!("{why}; the kernel's last words:\n{}", run.console.tail())
        }
    };
    ensure!(code == 0, ProgramFailed(code));
    ensure!(all_known || !arguments.fail_on_complaint, ProgramFailed(1));
    Ok(())
}

/// What a shell adds to the number of a signal.
const SIGNALLED: i32 = 128;
