// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs in guests: a kernel, a QEMU that runs it, and what the guest leaves.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::console::Console;
use super::guest::Guest;
use super::initramfs::Initramfs;
use super::kernel::KernelStore;
use super::qemu::{GuestRun, ProgramEnd, Qemu, VirtualMachine};
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

impl GuestRunner {
    /// Fetches and builds all that such guests take, unless it is there.
    pub(crate) fn prepare(guest: &Guest) -> Result<Self> {
        if let Some(path) = &guest.console {
            // Not what an earlier run said.
            File::create(path).context("writing what the kernel said")?;
        }
        let kernels = KernelStore::open()?;
        let kernel = kernels.get(&guest.kernel.recipe())?.image;
        let qemu = match &guest.qemu {
            Some(path) => Qemu::At(path.clone()),
            None => fetch_qemu(&kernels)?,
        };
        Ok(Self {
            guest: guest.clone(),
            kernel,
            qemu,
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

    /// Runs a guest, in which `files` say what to do, for `limit` seconds unless
    /// told otherwise. Its program writes where this process does, and reads what
    /// this one is given, if that is wanted.
    pub(super) fn run(&self, files: Initramfs, limit: u64, stdin: bool) -> Result<GuestRun> {
        let streams = [Box::new(io::stdout()) as Stream, Box::new(io::stderr())];
        self.start(files, limit, stdin, streams)
    }

    /// Runs a guest likewise, and keeps what its program writes.
    pub(crate) fn finish(&self, files: Initramfs, limit: u64) -> Result<FinishedGuest> {
        let (stdout, stderr) = (KeptOutput::default(), KeptOutput::default());
        let streams = [&stdout, &stderr].map(|stream| Box::new(stream.clone()) as Stream);
        let run = self.start(files, limit, false, streams)?;
        let complaints = self.told(&run.console);
        Ok(FinishedGuest {
            run,
            complaints,
            stdout: stdout.bytes(),
            stderr: String::from_utf8_lossy(&stderr.bytes()).into_owned(),
        })
    }

    /// What the guest's kernel complained of, for people, and whether all of it
    /// comes from bugs that it is known to have.
    pub(super) fn told(&self, console: &Console) -> (Vec<String>, bool) {
        console.told(&self.guest.kernel.patch)
    }

    fn start(
        &self,
        files: Initramfs,
        limit: u64,
        stdin: bool,
        [stdout, stderr]: [Stream; 2],
    ) -> Result<GuestRun> {
        let guest = &self.guest;
        let directory = paths::target().join(format!("guests/{}", std::process::id()));
        let run = self.qemu.run(VirtualMachine {
            kernel: &self.kernel,
            files,
            plugin: &self.plugin,
            directory: &directory,
            processors: guest.smp,
            cores: guest.cores,
            limit: Duration::from_secs(guest.limit.unwrap_or(limit)),
            stdin,
            stdout,
            stderr,
        })?;
        if let Some(path) = &guest.console {
            let written = File::options().create(true).append(true).open(path);
            written
                .and_then(|mut file| file.write_all(run.console.0.as_bytes()))
                .context("writing what the kernel said")?;
        }
        Ok(run)
    }
}

/// The QEMU, which lies beside the kernels.
pub(super) fn fetch_qemu(kernels: &KernelStore) -> Result<Qemu> {
    let _lock = kernels.lock("qemu.lock")?;
    Qemu::fetch(&kernels.directory().join("qemu"))
}

/// Where to put what a program writes.
type Stream = Box<dyn Write + Send>;

/// What is left of a guest whose program's output was kept.
#[derive(Debug)]
pub(crate) struct FinishedGuest {
    pub(super) run: GuestRun,
    /// Complaints of the guest's kernel, and whether all are known:
    /// [`GuestRunner::told`].
    pub(super) complaints: (Vec<String>, bool),
    stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl FinishedGuest {
    /// What the program wrote to standard output.
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// What the program left behind, and the files that were wanted.
    ///
    /// # Errors
    /// If it did not come to the program's end, or the kernel complained of what is
    /// no known bug.
    pub(crate) fn of_program(self) -> Result<(CommandOutput, Vec<Option<Vec<u8>>>)> {
        // As wait() has them.
        let status = match self.run.end {
            ProgramEnd::Exit(code) => code << 8,
            ProgramEnd::Signal(signal) => signal,
            ProgramEnd::Failed(why) => {
                bail!(
                    "{why}; the kernel's last words:\n{}",
                    self.run.console.tail()
                )
            }
        };
        let (lines, all_known) = self.complaints;
        ensure!(all_known, "{}", lines.join("\n"));
        let output = CommandOutput {
            status: ExitStatus::from_raw(status),
            stdout: self.stdout,
            stderr: self.stderr,
        };
        Ok((output, self.run.files))
    }
}

/// What a program writes, to be had when it has ended.
#[derive(Clone, Debug, Default)]
struct KeptOutput(Arc<Mutex<Vec<u8>>>);

impl KeptOutput {
    fn bytes(&self) -> Vec<u8> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Write for KeptOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

    fn finished(end: ProgramEnd, all_known: bool) -> FinishedGuest {
        FinishedGuest {
            run: GuestRun {
                end,
                console: Console("[1] last words\n".to_owned()),
                files: vec![Some(b"file".to_vec())],
            },
            complaints: (vec!["BUG: new".to_owned()], all_known),
            stdout: b"out".to_vec(),
            stderr: "err".to_owned(),
        }
    }

    #[test]
    fn a_program_ends_in_a_guest_as_elsewhere() {
        let (output, files) = finished(ProgramEnd::Exit(3), true).of_program().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (output.text().as_str(), output.tail().as_str()),
            ("out", "err")
        );
        assert_eq!(files, [Some(b"file".to_vec())]);
        let (output, _) = finished(ProgramEnd::Signal(9), true).of_program().unwrap();
        assert_eq!(output.status.signal(), Some(9));
    }

    #[test]
    fn a_lost_guest_and_a_new_bug_are_errors() {
        let lost = finished(ProgramEnd::Failed("why".to_owned()), true);
        let lost = lost.of_program().unwrap_err().to_string();
        assert!(
            lost.contains("why") && lost.contains("last words"),
            "{lost}"
        );
        let new = finished(ProgramEnd::Exit(0), false)
            .of_program()
            .unwrap_err();
        assert_eq!(new.to_string(), "BUG: new");
    }
}
