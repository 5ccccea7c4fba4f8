// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a guest: Debian's QEMU, unchanged, with the NPU as a plugin.

use std::fs::{self, File};
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use npu_vm::board;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

use super::console::Console;
use super::initramfs::Initramfs;
use crate::arch::Arch;
use crate::debian::Sysroot;
use crate::process::{self, collect};

/// QEMU comes from the suite that is stable now: version 10.0.
const SUITE: &str = "trixie";
const PACKAGE: &str = "qemu-system-arm";
const PROGRAM: &str = "usr/bin/qemu-system-aarch64";

/// What the kernel is told. It leaves the memory above alone, where the NPU's
/// registers are, ends the run if it panics, and tells of each mistake that KASAN
/// finds.
const KERNEL_ARGUMENTS: &str = "console=ttyAMA0 panic=-1 kasan_multi_shot";

/// The device with the ports, at the one transport of the device tree.
const VIRTIO: &str = "virtio-serial-device,bus=virtio-mmio-bus.0";

/// The guest's RAM.
const MIB: u64 = board::RAM_BYTES >> 20;

/// A program that emulates the guest.
#[derive(Debug)]
pub(crate) enum Qemu {
    /// Debian's QEMU, with its libraries.
    Fetched(Sysroot),
    /// A QEMU of the user's own.
    At(PathBuf),
}

/// A guest that QEMU is to run.
pub(crate) struct VirtualMachine<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) files: Initramfs,
    pub(crate) plugin: &'a Path,
    /// Directory for files of this run. It must not exist, and does not afterwards.
    pub(crate) directory: &'a Path,
    pub(crate) processors: u32,
    pub(crate) cores: u32,
    pub(crate) limit: Duration,
    /// Whether the program reads what this process is given.
    pub(crate) stdin: bool,
    /// Where to put what the program writes.
    pub(crate) stdout: Box<dyn Write + Send>,
    pub(crate) stderr: Box<dyn Write + Send>,
}

/// How the guest's program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramEnd {
    Exit(i32),
    Signal(i32),
    /// The program did not end, and why not.
    Failed(String),
}

/// How a guest's program ended, and what was fetched from the guest.
#[derive(Debug)]
pub(crate) struct GuestRun {
    pub(crate) end: ProgramEnd,
    /// All that the kernel said.
    pub(crate) console: Console,
    /// The files that were asked for; none that is not there.
    pub(crate) files: Vec<Option<Vec<u8>>>,
}

impl Qemu {
    /// Fetches it, unless that was done.
    pub(crate) fn fetch(directory: &Path) -> Result<Self> {
        let arch = Arch::native();
        Sysroot::prepare(directory, &[PACKAGE], SUITE, arch, false).map(Self::Fetched)
    }

    /// The command that starts QEMU, without the guest's options.
    fn command(&self) -> Result<Command> {
        let sysroot = match self {
            Self::Fetched(sysroot) => sysroot,
            Self::At(path) => return Ok(Command::new(path)),
        };
        let mut command = Command::new(sysroot.loader()?);
        command
            .arg("--library-path")
            .arg(sysroot.libraries())
            .arg(sysroot.root().join(PROGRAM))
            .arg("-L")
            .arg(sysroot.root().join("usr/share/qemu"));
        Ok(command)
    }

    /// Runs a guest to its end.
    pub(crate) fn run(&self, machine: VirtualMachine<'_>) -> Result<GuestRun> {
        let directory = machine.directory;
        fs::create_dir_all(directory).context("making the run's directory")?;
        let run = self.run_in(machine);
        fs::remove_dir_all(directory).context("removing the run's directory")?;
        run
    }

    fn run_in(&self, mut machine: VirtualMachine<'_>) -> Result<GuestRun> {
        let initramfs = machine.directory.join("initramfs");
        fs::write(&initramfs, machine.files.archive()?).context("writing the initramfs")?;
        let tree = machine.directory.join("tree.dtb");
        let blob = npu_vm::device_tree(machine.processors, machine.cores)
            .context("making the device tree")?;
        fs::write(&tree, blob).context("writing the device tree")?;

        let mut inherited = Inherited::default();
        let ram = memfd_create("guest-ram", MemfdFlags::empty()).context("making the RAM")?;
        let ram = File::from(ram);
        ram.set_len(board::RAM_BYTES).context("making the RAM")?;
        let ram = inherited.add(ram)?;

        let mut command = self.command()?;
        command
            .args(["-nodefaults", "-nographic", "-no-reboot"])
            .args(["-accel", "tcg,thread=multi", "-cpu", "cortex-a76"])
            .args(["-machine", "virt,gic-version=3,memory-backend=ram"])
            .args(["-smp", &machine.processors.to_string()])
            .args(["-m", &format!("{MIB}M")])
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=ram,size={MIB}M,mem-path=/proc/self/fd/{ram},share=on"
            ))
            .arg("-kernel")
            .arg(machine.kernel)
            .arg("-initrd")
            .arg(&initramfs)
            .arg("-dtb")
            .arg(&tree)
            .arg("-append")
            .arg(format!("{KERNEL_ARGUMENTS} mem={}M", board::KERNEL_MIB));

        let qmp = inherited.connect(&mut command, "qmp")?;
        command.args(["-mon", "chardev=qmp,mode=control"]);
        let qtest = inherited.connect(&mut command, "qtest")?;
        command.args(["-qtest", "chardev:qtest", "-qtest-log", "/dev/null"]);
        let plugin = machine.plugin.display();
        let cores = machine.cores;
        command.arg("-plugin").arg(format!(
            "{plugin},ram={ram},qmp={qmp},qtest={qtest},cores={cores}"
        ));

        let console = inherited.pipe(&mut command, "console")?;
        command.args(["-serial", "chardev:console"]);
        command.args(["-global", "virtio-mmio.force-legacy=false"]);
        command.args(["-device", VIRTIO]);
        let mut stdout = inherited.port(&mut command, "stdout")?;
        let mut stderr = inherited.port(&mut command, "stderr")?;
        if machine.stdin {
            inherited.input(&mut command, "stdin")?;
        }
        let status = inherited.port(&mut command, "status")?;
        let files = inherited.port(&mut command, "files")?;

        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().context("starting QEMU")?;
        // Its ends of the pipes are its alone, or they would never end.
        drop(inherited);
        let (console, status) = (collect(Some(console)), collect(Some(status)));
        let files = collect(Some(files));
        let copies = [
            thread::spawn(move || io::copy(&mut stdout, &mut machine.stdout)),
            thread::spawn(move || io::copy(&mut stderr, &mut machine.stderr)),
        ];
        let ended = process::wait(&mut child, machine.limit);
        for copy in copies {
            let copied = copy.join().map_err(|_| anyhow!("a reader panicked"))?;
            copied.context("passing on what the program writes")?;
        }
        let end = Instant::now();
        let (console, status) = (console.result(end)?, status.result(end)?);
        let files = files.result(end)?;
        let status = String::from_utf8_lossy(&status);
        let end = match ended {
            Err(error) => ProgramEnd::Failed(format!("the guest: {error:#}")),
            Ok(ended) if !ended.success() => ProgramEnd::Failed(format!("QEMU ended with {ended}")),
            Ok(_) => parse(&status),
        };
        Ok(GuestRun {
            end,
            console: Console(String::from_utf8_lossy(&console).into_owned()),
            files: files_of(&files),
        })
    }
}

/// The files that `vm-init` sent: each a length and as many bytes. What is not
/// whole is not there.
fn files_of(mut bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut files = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u64::from_le_bytes(*length);
        let file = usize::try_from(length)
            .ok()
            .and_then(|length| rest.split_at_checked(length));
        bytes = file.map_or(rest, |(_, rest)| rest);
        files.push(file.map(|(file, _)| file.to_owned()));
    }
    files
}

/// How `vm-init` says that its program ended.
fn parse(status: &str) -> ProgramEnd {
    let line = status.trim();
    let number = |word| line.strip_prefix(word).and_then(|rest| rest.parse().ok());
    if let Some(code) = number("exit ") {
        ProgramEnd::Exit(code)
    } else if let Some(signal) = number("signal ") {
        ProgramEnd::Signal(signal)
    } else if line.is_empty() {
        ProgramEnd::Failed("the guest's kernel ended before the program did".to_owned())
    } else {
        ProgramEnd::Failed(format!("in the guest, {line}"))
    }
}

/// File descriptors that QEMU inherits.
#[derive(Debug, Default)]
struct Inherited(Vec<OwnedFd>);

impl Inherited {
    /// Passes one on; returns its number.
    fn add(&mut self, fd: impl Into<OwnedFd>) -> Result<i32> {
        let fd = fd.into();
        fcntl_setfd(&fd, FdFlags::empty()).context("letting QEMU inherit a file")?;
        let number = fd.as_raw_fd();
        self.0.push(fd);
        Ok(number)
    }

    /// A connection between QEMU's character device `name` and the plugin;
    /// returns the plugin's end.
    fn connect(&mut self, command: &mut Command, name: &str) -> Result<i32> {
        let (qemu, plugin) = UnixStream::pair().context("making a connection")?;
        let fd = self.add(qemu)?;
        command.args(["-chardev", &format!("socket,id={name},fd={fd}")]);
        self.add(plugin)
    }

    /// What QEMU's character device `name` writes.
    fn pipe(&mut self, command: &mut Command, name: &str) -> Result<PipeReader> {
        let (reader, writer) = io::pipe().context("making a pipe")?;
        let path = format!("/proc/self/fd/{}", self.add(writer)?);
        // QEMU opens it as a file, which must not be cut off.
        let device = format!("file,id={name},path={path},append=on");
        command.args(["-chardev", &device]);
        Ok(reader)
    }

    /// The guest's port `name` gives what this process reads.
    fn input(&mut self, command: &mut Command, name: &str) -> Result<()> {
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        let fd = self.add(stdin.context("passing on the input")?)?;
        let device = format!("file,id={name},path=/dev/null,input-path=/proc/self/fd/{fd}");
        command.args(["-chardev", &device]);
        let device = format!("virtserialport,chardev={name},name={name}");
        command.args(["-device", &device]);
        Ok(())
    }

    /// A pipe from the guest's port `name`.
    fn port(&mut self, command: &mut Command, name: &str) -> Result<PipeReader> {
        let reader = self.pipe(command, name)?;
        let device = format!("virtserialport,chardev={name},name={name}");
        command.args(["-device", &device]);
        Ok(reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_what_the_guest_says() {
        assert_eq!(parse("exit 3\n"), ProgramEnd::Exit(3));
        assert_eq!(parse("signal 9\n"), ProgramEnd::Signal(9));
        for (status, told) in [("", "kernel"), ("failed: no such file\n", "no such file")] {
            let ProgramEnd::Failed(why) = parse(status) else {
                panic!("{status}");
            };
            assert!(why.contains(told), "{why}");
        }
    }

    #[test]
    fn files_have_their_lengths_before_them() {
        let mut bytes = Vec::new();
        for (length, data) in [(2, "ab"), (u64::MAX, ""), (0, ""), (3, "cd")] {
            bytes.extend(u64::to_le_bytes(length));
            bytes.extend(data.as_bytes());
        }
        let files = files_of(&bytes);
        assert_eq!(files[..3], [Some(b"ab".to_vec()), None, Some(Vec::new())]);
        assert_eq!(files[3], None, "cut off");
    }
}
