// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm`: programs on the real `rocket` driver, in a virtual machine
//! whose NPU is the software chip. See docs/vm.md.

mod initramfs;
mod kernel;
mod programs;
mod qemu;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::arch::first_missing;
use crate::{build, paths};
use initramfs::Initramfs;
use kernel::Kernels;
use qemu::{End, Machine, Qemu};

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Build the guest's kernel, unless it is there
    Build(Kernel),
    /// Run one program in a guest and end as it ends
    Run(Run),
    /// Run C clients and npu-probe's self-test, each in a guest
    Programs(Kernel),
}

/// Which kernel
#[derive(Args, Debug)]
pub(crate) struct Kernel {
    /// Linux version, of those that Debian offers: `7.3`, `7.3.4` [default: the
    /// newest]
    #[arg(long, value_name = "VERSION")]
    kernel: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    kernel: Kernel,
    /// Processors of the guest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    smp: u32,
    /// Cores of the NPU
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3))]
    cores: u32,
    /// Put a file or directory of this machine into the guest; may be repeated
    #[arg(long, value_name = "HOST:GUEST")]
    file: Vec<String>,
    /// Set a variable for the program; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Kill the guest after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// Write what the guest's kernel says to a file
    #[arg(long, value_name = "PATH")]
    console: Option<PathBuf>,
    /// A program of this workspace, by name, or a path in the guest; and its
    /// arguments
    #[arg(required = true, last = true, value_name = "PROGRAM ARGS")]
    command: Vec<String>,
}

/// Programs without which nothing works.
const NEEDED: [&str; 2] = ["apt-get", "dpkg-deb"];

pub(crate) fn run(command: &Command) -> Result<()> {
    if let Some(missing) = first_missing(NEEDED) {
        bail!("`{missing}` is missing: this works on Debian and its descendants");
    }
    match command {
        Command::Build(arguments) => {
            let kernel = Kernels::open()?.build(arguments.kernel.as_deref())?;
            println!("{}", kernel.image.display());
            Ok(())
        }
        Command::Run(arguments) => run_program(arguments),
        Command::Programs(arguments) => programs::run(arguments.kernel.as_deref()),
    }
}

/// Runs the program. Does not return if the guest's program ended.
fn run_program(arguments: &Run) -> Result<()> {
    let kernels = Kernels::open()?;
    let wanted = arguments.kernel.kernel.as_deref();
    let kernel = match kernels.find(wanted)? {
        Some(kernel) => kernel,
        None => kernels.build(wanted)?,
    };
    let mut files = Initramfs::new(&build::guest("vm-init")?)?;
    for file in &arguments.file {
        let (host, guest) = file
            .split_once(':')
            .filter(|(_, guest)| guest.starts_with('/'))
            .with_context(|| {
                format!("`{file}` is not HOST:GUEST with a whole path in the guest")
            })?;
        files.add(host.as_ref(), guest)?;
    }
    let mut command = arguments.command.clone();
    if let Some(program) = command.first_mut().filter(|program| !program.contains('/')) {
        let place = format!("/bin/{program}");
        files.add(&build::guest(program)?, &place)?;
        *program = place;
    }
    if let Some(set) = arguments.env.iter().find(|set| !set.contains('=')) {
        bail!("`{set}` is not NAME=VALUE");
    }
    files.command(&arguments.env, &command);
    let qemu = {
        let _lock = kernels.lock("qemu.lock")?;
        Qemu::fetch(&kernels.directory().join("qemu"))?
    };
    let directory = paths::target().join(format!("guests/{}", std::process::id()));
    let run = qemu.run(&Machine {
        kernel: &kernel.image,
        files,
        plugin: &build::vm_plugin()?,
        directory: &directory,
        processors: arguments.smp,
        cores: arguments.cores,
        limit: Duration::from_secs(arguments.limit),
    })?;
    if let Some(path) = &arguments.console {
        std::fs::write(path, &run.console).context("writing what the kernel said")?;
    }
    for line in run.complaints() {
        eprintln!("guest kernel: {line}");
    }
    let code = match run.end {
        End::Exit(code) => code,
        End::Signal(signal) => {
            eprintln!("{} ended by signal {signal}", arguments.command[0]);
            SIGNALLED + signal
        }
        End::Failed(ref why) => bail!("{why}; the kernel's last words:\n{}", run.console_tail()),
    };
    ensure!(code == 0, Ended(code));
    Ok(())
}

/// What a shell adds to the number of a signal.
const SIGNALLED: i32 = 128;

/// The guest's program ended with this exit status, and so does this one.
#[derive(Debug, thiserror::Error)]
#[error("exit status {0}")]
pub(crate) struct Ended(i32);

impl Ended {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(u8::try_from(self.0).unwrap_or(u8::MAX))
    }
}
