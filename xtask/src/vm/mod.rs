// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm`: runs programs on the real `rocket` driver, in a virtual machine whose NPU is
//! the software chip. See docs/vm.md.

mod boards;
mod console;
mod guest;
mod initramfs;
mod kernel;
mod overlays;
mod qemu;
mod runner;
mod test;
mod tree;

use std::fs;
use std::os::unix::process::ExitStatusExt;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::arch::first_missing;
use crate::build;
use guest::{Guest, KernelArgs};
use initramfs::{COMMAND, ENVIRONMENT, Initramfs, WANTED};
use kernel::KernelStore;
use qemu::{Qemu, Streams};
pub(crate) use runner::ProgramFailed;
use runner::{GuestRunner, LIMIT};

#[derive(Subcommand, Debug)]
pub(crate) enum VmCommand {
    /// Fetch QEMU and build the guest's kernel, unless they are cached
    Build(KernelArgs),
    /// Run one program in a guest and exit with its status
    Run(RunArgs),
    /// Run the driver suite in separate guests, and report as KTAP
    Test(test::TestArgs),
    /// Run `npu-probe first` on boards that differ, and check its output
    First(boards::FirstArgs),
    /// Apply the overlays of docs/boards.md to the device trees of all boards, and boot a guest with
    /// the faster clock
    Overlays(Guest),
    /// Run a shell in a guest
    Shell(ShellArgs),
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
    /// Exit with status 1 also if the guest's kernel printed a complaint that is not in
    /// tests/hw/expected/console.txt
    #[arg(long)]
    fail_on_complaint: bool,
    /// A program of this workspace, by name, or a path in the guest; and its
    /// arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    guest: Guest,
    /// Put a file of this machine into the guest; may be repeated
    #[arg(long, value_name = "HOST:GUEST")]
    file: Vec<String>,
    /// Programs of this workspace to put into /bin
    #[arg(value_name = "PROGRAM")]
    programs: Vec<String>,
}

/// Programs that every command needs.
const NEEDED: [&str; 2] = ["apt-get", "dpkg-deb"];

/// Installs the tools' names, then runs the shell.
const START: &str = "/bin/busybox --install -s /bin; exec /bin/busybox sh -i";

/// Time limit of a shell, in seconds: a day.
const SHELL_LIMIT: u64 = 24 * 60 * 60;

/// A shell adds this to the number of a signal.
const SIGNALLED: i32 = 128;

pub(crate) fn run(command: &VmCommand) -> Result<()> {
    if let Some(missing) = first_missing(NEEDED) {
        bail!("`{missing}` is missing: this command needs Debian or a system based on it");
    }
    match command {
        VmCommand::Build(kernel) => {
            let kernels = KernelStore::open()?;
            Qemu::fetch(&kernels)?;
            println!("{}", kernels.build(kernel)?.display());
            Ok(())
        }
        VmCommand::Run(arguments) => run_program(arguments),
        VmCommand::Test(arguments) => test::run(arguments),
        VmCommand::First(arguments) => boards::run(arguments),
        VmCommand::Overlays(guest) => overlays::run(guest),
        VmCommand::Shell(arguments) => run_shell(arguments),
    }
}

/// Runs the program; ends with its status.
fn run_program(arguments: &RunArgs) -> Result<()> {
    let runner = GuestRunner::prepare(&arguments.guest)?;
    let mut command = arguments.command.clone();
    let (mut files, program) = runner.files(&command[0])?;
    command[0] = program;
    add(&mut files, &arguments.file)?;
    let wanted = arguments
        .out
        .iter()
        .map(|out| pair(out, true))
        .collect::<Result<Vec<_>>>()?;
    let names: Vec<_> = wanted.iter().map(|(guest, _)| *guest).collect();
    files.set_list(WANTED, &names);
    if let Some(set) = arguments.env.iter().find(|set| !set.contains('=')) {
        bail!("`{set}` is not NAME=VALUE");
    }
    files.set_list(ENVIRONMENT, &arguments.env);
    files.set_list(COMMAND, &command);
    let finished = runner.run(files, LIMIT, Streams::Output)?;
    finished.tell_complaints();
    for (place, (guest, path)) in wanted.iter().enumerate() {
        match finished.left.files.get(place).and_then(Option::as_ref) {
            Some(file) => fs::write(path, file).with_context(|| format!("writing {path}"))?,
            None => eprintln!("the guest has no file {guest}"),
        }
    }
    let status = finished.status()?;
    let code = match status.signal() {
        Some(signal) => {
            eprintln!("{} ended by signal {signal}", arguments.command[0]);
            SIGNALLED + signal
        }
        None => status.code().unwrap_or_default(),
    };
    ensure!(code == 0, ProgramFailed(code));
    ensure!(
        finished.all_known || !arguments.fail_on_complaint,
        ProgramFailed(1)
    );
    Ok(())
}

/// Runs a shell, line by line, on this process's input and output.
fn run_shell(arguments: &ShellArgs) -> Result<()> {
    let runner = GuestRunner::prepare(&arguments.guest)?;
    let (mut files, shell) = runner.with_shell()?;
    for program in &arguments.programs {
        files.add(&build::guest(program)?, &format!("/bin/{program}"))?;
    }
    add(&mut files, &arguments.file)?;
    files.set_list(COMMAND, &[shell.as_str(), "sh", "-c", START]);
    let finished = runner.run(files, SHELL_LIMIT, Streams::Terminal)?;
    finished.tell_complaints();
    // The status of the last command in a shell does not matter.
    let end = finished.left.end;
    ensure!(
        end.is_ok_and(|status| status.code().is_some()),
        ProgramFailed(1)
    );
    Ok(())
}

/// Copies files into a guest, each given as `HOST:GUEST`.
fn add(files: &mut Initramfs, pairs: &[String]) -> Result<()> {
    pairs.iter().try_for_each(|text| {
        let (host, guest) = pair(text, false)?;
        files.add(host.as_ref(), guest)
    })
}

/// Both parts of `FIRST:SECOND`. The guest's path must be absolute.
fn pair(text: &str, guest_is_first: bool) -> Result<(&str, &str)> {
    let (first, second) = text.split_once(':').unwrap_or_default();
    let guest = if guest_is_first { first } else { second };
    ensure!(
        guest.starts_with('/') && !first.is_empty() && !second.is_empty(),
        "`{text}` is not two paths separated by a colon, with that in the guest absolute"
    );
    Ok((first, second))
}
