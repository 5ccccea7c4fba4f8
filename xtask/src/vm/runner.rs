// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs in guests: a kernel, a QEMU that runs it, and what the guest leaves.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::console;
use super::guest::Guest;
use super::initramfs::Initramfs;
use super::kernel::KernelStore;
use super::qemu::{ProgramEnd, Qemu, Remains, VirtualMachine};
use crate::process::CommandOutput;
use crate::{build, paths};

/// Seconds after which a guest whose program has not ended is killed.
pub(super) const LIMIT: u64 = 600;

/// Runs guests of one kind.
#[derive(Debug)]
pub(crate) struct GuestRunner {
    guest: Guest,
    kernel: PathBuf,
    qemu: Qemu,
    plugin: PathBuf,
    init: PathBuf,
}

/// What a guest leaves, and what its kernel complained of, for people; whether all of
/// that comes from bugs that it is known to have.
#[derive(Debug)]
pub(crate) struct FinishedGuest {
    pub(super) left: Remains,
    pub(super) complaints: Vec<String>,
    pub(super) all_known: bool,
}

impl GuestRunner {
    /// Fetches and builds all that such guests take, unless it is there.
    pub(crate) fn prepare(guest: &Guest) -> Result<Self> {
        if let Some(path) = &guest.console {
            // Not what an earlier run said.
            File::create(path).context("writing what the kernel said")?;
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
        })
    }

    /// What a guest has at least, and the place of the program in it: one of this
    /// workspace, by name, or a path where the caller puts it.
    pub(crate) fn files(&self, program: &str) -> Result<(Initramfs, String)> {
        let mut files = Initramfs::new(&self.init)?;
        if program.contains('/') {
            return Ok((files, program.to_owned()));
        }
        let place = format!("/bin/{program}");
        files.add(&build::guest(program)?, &place)?;
        Ok((files, place))
    }

    /// Runs a guest, in which `files` say what to do, for `limit` seconds unless told
    /// otherwise, and keeps what its program writes.
    pub(crate) fn finish(&self, files: Initramfs, limit: u64) -> Result<FinishedGuest> {
        self.start(files, limit, false, false)
    }

    /// Runs a guest likewise, whose program writes where this process does, and reads
    /// what this one is given, if that is wanted; tells of complaints.
    pub(super) fn run(&self, files: Initramfs, limit: u64, stdin: bool) -> Result<FinishedGuest> {
        let finished = self.start(files, limit, true, stdin)?;
        finished
            .complaints
            .iter()
            .for_each(|line| eprintln!("{line}"));
        Ok(finished)
    }

    fn start(
        &self,
        files: Initramfs,
        limit: u64,
        live: bool,
        stdin: bool,
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
            limit: Duration::from_secs(guest.limit.unwrap_or(limit)),
            live,
            stdin,
        })?;
        if let Some(path) = &guest.console {
            let written = File::options().create(true).append(true).open(path);
            written
                .and_then(|mut file| file.write_all(left.console.as_bytes()))
                .context("writing what the kernel said")?;
        }
        let (complaints, all_known) = console::told(&left.console, &guest.kernel.patches);
        Ok(FinishedGuest {
            left,
            complaints,
            all_known,
        })
    }
}

impl FinishedGuest {
    /// What the program wrote to standard output.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.left.stdout).into_owned()
    }

    /// How the program ended, as wait() has it.
    ///
    /// # Errors
    /// If it did not come to that.
    pub(super) fn status(&self) -> Result<ExitStatus> {
        Ok(ExitStatus::from_raw(match &self.left.end {
            ProgramEnd::Exit(code) => code << 8,
            ProgramEnd::Signal(signal) => *signal,
            ProgramEnd::Failed(why) => {
                bail!(
                    "{why}; the kernel's last words:\n{}",
                    console::tail(&self.left.console)
                )
            }
        }))
    }

    /// What the program left behind, and the files that were wanted.
    ///
    /// # Errors
    /// If it did not come to the program's end, or the kernel complained of what is
    /// no known bug.
    pub(crate) fn of_program(self) -> Result<(CommandOutput, Vec<Option<Vec<u8>>>)> {
        let status = self.status()?;
        ensure!(self.all_known, "{}", self.complaints.join("\n"));
        let stderr = String::from_utf8_lossy(&self.left.stderr).into_owned();
        let output = CommandOutput {
            status,
            stdout: self.left.stdout,
            stderr,
        };
        Ok((output, self.left.files))
    }
}

/// The guest's program ended with this exit status, and so does this one.
#[derive(Debug, thiserror::Error)]
#[error("exit status {0}")]
pub(crate) struct ProgramFailed(pub(super) i32);

impl ProgramFailed {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(u8::try_from(self.0).unwrap_or(u8::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: ProgramEnd, all_known: bool) -> Result<(CommandOutput, Vec<Option<Vec<u8>>>)> {
        let left = Remains {
            end,
            console: "[1] last words\n".to_owned(),
            files: vec![Some(b"file".to_vec())],
            stdout: b"out".to_vec(),
            stderr: b"err".to_vec(),
        };
        FinishedGuest {
            left,
            complaints: vec!["BUG: new".to_owned()],
            all_known,
        }
        .of_program()
    }

    #[test]
    fn a_program_ends_in_a_guest_as_elsewhere() {
        let (output, files) = outcome(ProgramEnd::Exit(3), true).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.text()[..], &output.tail()[..]), ("out", "err"));
        assert_eq!(files, [Some(b"file".to_vec())]);
        let (output, _) = outcome(ProgramEnd::Signal(9), true).unwrap();
        assert_eq!(output.status.signal(), Some(9));
    }

    #[test]
    fn a_lost_guest_and_a_new_bug_are_errors() {
        let lost = outcome(ProgramEnd::Failed("why".to_owned()), true)
            .unwrap_err()
            .to_string();
        assert!(
            lost.contains("why") && lost.contains("last words"),
            "{lost}"
        );
        let new = outcome(ProgramEnd::Exit(0), false).unwrap_err();
        assert_eq!(new.to_string(), "BUG: new");
    }
}
