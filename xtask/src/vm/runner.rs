// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs in guests: combines a kernel, a QEMU and the results of the guest.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::console;
use super::guest::Guest;
use super::initramfs::Initramfs;
use super::kernel::{KernelStore, TREES};
use super::qemu::{Qemu, Remains, Streams, VirtualMachine};
use crate::arch::Arch;
use crate::debian::Sysroot;
use crate::{build, paths};

/// Seconds after which a guest whose program has not ended is killed.
pub(super) const LIMIT: u64 = 600;

/// Debian's shell and tools in one static file, and its place in the guest.
const BUSYBOX: &str = "busybox-static";
const SUITE: &str = "trixie";
const SHELL: &str = "/bin/busybox";

/// Runs guests with the same options.
#[derive(Debug)]
pub(super) struct GuestRunner {
    guest: Guest,
    kernel: PathBuf,
    qemu: Qemu,
    plugin: PathBuf,
    init: PathBuf,
    overlay: Option<PathBuf>,
    arguments: String,
}

/// The results of a guest, its kernel's complaints as lines for people, and whether known bugs
/// cause all of them.
#[derive(Debug)]
pub(super) struct FinishedGuest {
    pub(super) left: Remains,
    pub(super) complaints: Vec<String>,
    pub(super) all_known: bool,
}

impl GuestRunner {
    /// Fetches and builds everything that such guests need and that is missing.
    pub(super) fn prepare(guest: &Guest) -> Result<Self> {
        if let Some(path) = &guest.console {
            // Removes the output of an earlier run.
            File::create(path).context("writing the kernel's console")?;
        }
        let kernels = KernelStore::open()?;
        Ok(Self {
            guest: guest.clone(),
            kernel: kernels.get(&guest.kernel)?,
            qemu: match &guest.qemu {
                Some(path) => Qemu::at(path),
                None => Qemu::fetch(&kernels)?,
            },
            plugin: build::vm_plugin()?,
            init: build::guest("vm-init")?,
            overlay: None,
            arguments: String::new(),
        })
    }

    /// Sets the NPU's options for further guests.
    pub(super) fn play(&mut self, npu: &[&str]) {
        self.guest.npu = npu.iter().map(ToString::to_string).collect();
    }

    /// The directory of the device trees of boards.
    pub(super) fn trees(&self) -> PathBuf {
        self.kernel.with_file_name(TREES)
    }

    /// Boots further guests with an overlay of the device tree, if there is one, and further
    /// arguments of the kernel.
    pub(super) fn boot_with(&mut self, overlay: Option<&Path>, arguments: &str) {
        self.overlay = overlay.map(Path::to_owned);
        arguments.clone_into(&mut self.arguments);
    }

    /// The minimal files of a guest, and the program's path in it. The program is one of this
    /// workspace, by name, or a path at which the caller puts it.
    pub(super) fn files(&self, program: &str) -> Result<(Initramfs, String)> {
        let mut files = Initramfs::new(&self.init)?;
        if program.contains('/') {
            return Ok((files, program.to_owned()));
        }
        let place = format!("/bin/{program}");
        files.add(&build::guest(program)?, &place)?;
        Ok((files, place))
    }

    /// The files of a guest with a shell, and the shell's path.
    pub(super) fn with_shell(&self) -> Result<(Initramfs, String)> {
        let kernels = KernelStore::open()?;
        let tools = {
            let _lock = kernels.lock("busybox.lock")?;
            let directory = kernels.directory.join("busybox");
            Sysroot::prepare(&directory, &[BUSYBOX], SUITE, Arch::Arm64)?
        };
        let (mut files, shell) = self.files(SHELL)?;
        files.add(&tools.root().join("usr/bin/busybox"), &shell)?;
        Ok((files, shell))
    }

    /// Runs a guest with `files`, for at most `limit` seconds unless the user set another limit.
    pub(super) fn run(
        &self,
        files: Initramfs,
        limit: u64,
        streams: Streams,
    ) -> Result<FinishedGuest> {
        let guest = &self.guest;
        let directory = paths::target().join(format!("guests/{}", std::process::id()));
        let left = self.qemu.run(VirtualMachine {
            kernel: &self.kernel,
            files,
            plugin: &self.plugin,
            directory: &directory,
            processors: guest.smp,
            cores: guest.cores,
            overlay: self.overlay.as_deref(),
            arguments: &self.arguments,
            npu: &guest.npu,
            limit: Duration::from_secs(guest.limit.unwrap_or(limit)),
            streams,
        })?;
        if let Some(path) = &guest.console {
            let written = File::options().create(true).append(true).open(path);
            written
                .and_then(|mut file| file.write_all(left.console.as_bytes()))
                .context("writing the kernel's console")?;
        }
        let (complaints, all_known) = console::summary(&left.console, &guest.kernel.patches);
        Ok(FinishedGuest {
            left,
            complaints,
            all_known,
        })
    }
}

impl FinishedGuest {
    /// Prints the kernel's complaints.
    pub(super) fn tell_complaints(&self) {
        self.complaints.iter().for_each(|line| eprintln!("{line}"));
    }

    /// The program's standard output.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.left.stdout).into_owned()
    }

    /// The program's exit status; an error if it did not end.
    pub(super) fn status(&self) -> Result<ExitStatus> {
        let tail = || console::tail(&self.left.console);
        let end = self.left.end.clone();
        end.map_err(|why| anyhow!("{why}; the kernel's last words:\n{}", tail()))
    }
}

/// The exit status of a failed guest program, which this process also ends with.
#[derive(Debug, thiserror::Error)]
#[error("exit status {0}")]
pub(crate) struct ProgramFailed(pub(super) i32);

impl ProgramFailed {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(u8::try_from(self.0).unwrap_or(u8::MAX))
    }
}
