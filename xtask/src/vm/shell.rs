// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm shell`: a guest to look around in.

use anyhow::{Result, ensure};

use super::guest::Guest;
use super::initramfs::pair;
use super::kernel::KernelStore;
use super::qemu::ProgramEnd;
use super::runner::{GuestRunner, ProgramFailed};
use crate::arch::Arch;
use crate::build;
use crate::debian::Sysroot;

/// Debian's shell and tools in one static file.
const PACKAGE: &str = "busybox-static";
const SUITE: &str = "trixie";
const PROGRAM: &str = "usr/bin/busybox";

/// Place of the shell in the guest.
const SHELL: &str = "/bin/busybox";

/// Makes the tools' names, and becomes the shell.
const START: &str = "/bin/busybox --install -s /bin; exec /bin/busybox sh -i";

/// Seconds after which somebody has gone home: a day.
const LIMIT: u64 = 24 * 60 * 60;

#[derive(clap::Args, Debug)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    guest: Guest,
    /// Put a file of this machine into the guest; may be repeated
    #[arg(long, value_name = "HOST:GUEST")]
    file: Vec<String>,
    /// Programs of this workspace to have in /bin
    #[arg(value_name = "PROGRAM")]
    programs: Vec<String>,
}

/// Runs a shell, line by line, on this process's input and output.
pub(crate) fn run(arguments: &ShellArgs) -> Result<()> {
    let runner = GuestRunner::prepare(&arguments.guest)?;
    let kernels = KernelStore::open()?;
    let tools = {
        let _lock = kernels.lock("busybox.lock")?;
        let directory = kernels.directory().join("busybox");
        Sysroot::prepare(&directory, &[PACKAGE], SUITE, Arch::Arm64, false)?
    };
    let (mut files, shell) = runner.files(SHELL)?;
    files.add(&tools.root().join(PROGRAM), &shell)?;
    for program in &arguments.programs {
        files.add(&build::guest(program)?, &format!("/bin/{program}"))?;
    }
    for file in &arguments.file {
        let (path, place) = pair(file, false)?;
        files.add(path.as_ref(), place)?;
    }
    files.command(&[&shell, "sh", "-c", START]);
    let run = runner.run(files, LIMIT, true)?;
    let (complaints, _) = runner.told(&run.console);
    complaints.iter().for_each(|line| eprintln!("{line}"));
    // How the last command of a shell ended says nothing of the shell.
    ensure!(matches!(run.end, ProgramEnd::Exit(_)), ProgramFailed(1));
    Ok(())
}
