// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a guest in Debian's QEMU, unchanged, with the NPU as a plugin.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use npu_vm::board;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

use super::initramfs::Initramfs;
use super::kernel::KernelStore;
use super::tree;
use crate::arch::Arch;
use crate::debian::Sysroot;
use crate::process;

/// Debian's stable suite, which has QEMU 10.0.
const SUITE: &str = "trixie";
const PACKAGE: &str = "qemu-system-arm";
const PROGRAM: &str = "usr/bin/qemu-system-aarch64";

/// The kernel's command line. The kernel leaves the memory above alone, where the NPU's registers
/// are. It ends the run if it panics, and reports each error that KASAN finds.
const KERNEL_ARGUMENTS: &str = "console=ttyAMA0 panic=-1 kasan_multi_shot";

/// The device with the ports, on the only transport of the device tree.
const VIRTIO: &str = "virtio-serial-device,bus=virtio-mmio-bus.0";

/// The guest's RAM.
const MIB: u64 = board::RAM_BYTES >> 20;

/// A guest for QEMU to run.
pub(super) struct VirtualMachine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) files: Initramfs,
    pub(super) plugin: &'a Path,
    /// Directory for files of this run. It must not exist, and is removed afterwards.
    pub(super) directory: &'a Path,
    pub(super) processors: u32,
    pub(super) cores: u32,
    /// An overlay of the device tree.
    pub(super) overlay: Option<&'a Path>,
    /// Further arguments of the kernel.
    pub(super) arguments: &'a str,
    /// Further arguments of the plugin.
    pub(super) npu: &'a [String],
    pub(super) limit: Duration,
    pub(super) streams: Streams,
}

/// Standard input and output of the guest's program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// Its output is kept; it has no input.
    Kept,
    /// Its output is this process's; it has no input.
    Output,
    /// Its output and input are this process's.
    Terminal,
}

/// The results of a guest.
#[derive(Debug)]
pub(super) struct Remains {
    /// The exit status of the guest's program, or why it did not end.
    pub(super) end: Result<ExitStatus, String>,
    /// The kernel's console output.
    pub(super) console: String,
    /// The requested files; `None` for a missing one.
    pub(super) files: Vec<Option<Vec<u8>>>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// The command that starts QEMU, without the guest's options: program and arguments.
#[derive(Debug)]
pub(super) struct Qemu(Vec<PathBuf>);

impl Qemu {
    /// The user's QEMU.
    pub(super) fn at(path: &Path) -> Self {
        Self(vec![path.to_owned()])
    }

    /// Fetches Debian's QEMU with its libraries, if it is missing.
    pub(super) fn fetch(kernels: &KernelStore) -> Result<Self> {
        let _lock = kernels.lock("qemu.lock")?;
        let directory = kernels.directory.join("qemu");
        let sysroot = Sysroot::prepare(&directory, &[PACKAGE], SUITE, Arch::native())?;
        Ok(Self(vec![
            sysroot.loader()?,
            "--library-path".into(),
            sysroot.libraries(),
            sysroot.root().join(PROGRAM),
            "-L".into(),
            sysroot.root().join("usr/share/qemu"),
        ]))
    }

    /// Runs a guest to its end.
    pub(super) fn run(&self, machine: VirtualMachine<'_>) -> Result<Remains> {
        let directory = machine.directory;
        fs::create_dir_all(directory).context("making the run's directory")?;
        let run = self.run_in(machine);
        fs::remove_dir_all(directory).context("removing the run's directory")?;
        run
    }

    fn run_in(&self, machine: VirtualMachine<'_>) -> Result<Remains> {
        let directory = machine.directory;
        let initramfs = directory.join("initramfs");
        fs::write(&initramfs, machine.files.archive()?).context("writing the initramfs")?;
        let base = directory.join("tree.dtb");
        let blob = npu_vm::device_tree(machine.processors, machine.cores)
            .context("making the device tree")?;
        fs::write(&base, blob).context("writing the device tree")?;
        if let Some(overlay) = machine.overlay {
            tree::apply(&base, overlay, &base)?;
        }

        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]);
        let mut inherited = Inherited::default();
        let ram = memfd_create("guest-ram", MemfdFlags::empty()).context("making the RAM")?;
        let ram = File::from(ram);
        ram.set_len(board::RAM_BYTES).context("making the RAM")?;
        let ram = inherited.add(ram)?;
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
            .arg(&base)
            .arg("-append")
            .arg(format!(
                "{KERNEL_ARGUMENTS} mem={}M {}",
                board::KERNEL_MIB,
                machine.arguments
            ));

        let qmp = inherited.connect(&mut command, "qmp")?;
        command.args(["-mon", "chardev=qmp,mode=control"]);
        let qtest = inherited.connect(&mut command, "qtest")?;
        command.args(["-qtest", "chardev:qtest", "-qtest-log", "/dev/null"]);
        let (plugin, cores) = (machine.plugin.display(), machine.cores);
        let mut plugin = format!("{plugin},ram={ram},qmp={qmp},qtest={qtest},cores={cores}");
        for option in machine.npu {
            plugin.extend([",", option]);
        }
        command.arg("-plugin").arg(plugin);

        let file = |name: &str| directory.join(name);
        let to_file = |name| format!("file,id={name},path={}", file(name).display());
        command.args([
            "-chardev",
            &to_file("console"),
            "-serial",
            "chardev:console",
        ]);
        command.args([
            "-global",
            "virtio-mmio.force-legacy=false",
            "-device",
            VIRTIO,
        ]);
        let mut copies = Vec::new();
        for name in ["stdout", "stderr", "status", "files"] {
            let device = match (machine.streams != Streams::Kept, name) {
                (true, "stdout") => inherited.pass_on(name, io::stdout(), &mut copies)?,
                (true, "stderr") => inherited.pass_on(name, io::stderr(), &mut copies)?,
                _ => to_file(name),
            };
            port(&mut command, name, &device);
        }
        if machine.streams == Streams::Terminal {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            let fd = inherited.add(stdin.context("passing on the input")?)?;
            let device = format!("file,id=stdin,path=/dev/null,input-path=/proc/self/fd/{fd}");
            port(&mut command, "stdin", &device);
        }

        let mut command = process::limited(&command, machine.limit);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().context("starting QEMU")?;
        // Only QEMU may hold its ends of the pipes, or reading never ends.
        drop(inherited);
        let ended = child.wait().context("waiting for QEMU")?;
        for copy in copies {
            let copied = copy.join().map_err(|_| anyhow!("a reader panicked"))?;
            copied.context("passing on the program's output")?;
        }
        // A file that QEMU did not make counts as empty.
        let left = |name| fs::read(file(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&left(name)).into_owned();
        let end = match process::in_time(ended, machine.limit) {
            Err(error) => Err(format!("the guest: {error:#}")),
            Ok(()) if !ended.success() => Err(format!("QEMU ended with {ended}")),
            Ok(()) => parse(&text("status")),
        };
        Ok(Remains {
            end,
            console: text("console"),
            files: files_of(&left("files")),
            stdout: left("stdout"),
            stderr: left("stderr"),
        })
    }
}

/// Adds a port of the guest, connected to the character device.
fn port(command: &mut Command, name: &str, device: &str) {
    command.args(["-chardev", device, "-device"]);
    command.arg(format!("virtserialport,chardev={name},name={name}"));
}

/// The files that `vm-init` sent, each as a length and its bytes. Incomplete files count as
/// missing.
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

/// Parses the status that `vm-init` reports for its program.
fn parse(status: &str) -> Result<ExitStatus, String> {
    let line = status.trim();
    let number = |word| line.strip_prefix(word)?.parse::<i32>().ok();
    // As from wait().
    let signal = number("signal ");
    let raw = number("exit ").map(|code| code << 8).or(signal);
    raw.map(ExitStatus::from_raw).ok_or_else(|| match line {
        "" => "the guest's kernel ended before the program did".to_owned(),
        _ => format!("in the guest, {line}"),
    })
}

/// File descriptors that QEMU inherits.
#[derive(Debug, Default)]
struct Inherited(Vec<OwnedFd>);

impl Inherited {
    /// Adds a descriptor; returns its number.
    fn add(&mut self, fd: impl Into<OwnedFd>) -> Result<i32> {
        let fd = fd.into();
        fcntl_setfd(&fd, FdFlags::empty()).context("passing a file to QEMU")?;
        let number = fd.as_raw_fd();
        self.0.push(fd);
        Ok(number)
    }

    /// Connects QEMU's character device `name` with the plugin; returns the plugin's end.
    fn connect(&mut self, command: &mut Command, name: &str) -> Result<i32> {
        let (qemu, plugin) = UnixStream::pair().context("making a connection")?;
        let fd = self.add(qemu)?;
        command.args(["-chardev", &format!("socket,id={name},fd={fd}")]);
        self.add(plugin)
    }

    /// Adds a character device `name` whose output goes to `to`.
    fn pass_on(
        &mut self,
        name: &str,
        mut to: impl Write + Send + 'static,
        copies: &mut Vec<JoinHandle<io::Result<u64>>>,
    ) -> Result<String> {
        let (mut reader, writer) = io::pipe().context("making a pipe")?;
        copies.push(thread::spawn(move || io::copy(&mut reader, &mut to)));
        // QEMU opens it as a file and must not truncate it.
        let path = format!("/proc/self/fd/{}", self.add(writer)?);
        Ok(format!("file,id={name},path={path},append=on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_what_the_guest_says() {
        assert_eq!(parse("exit 3\n").unwrap().code(), Some(3));
        assert_eq!(parse("signal 9\n").unwrap().signal(), Some(9));
        for (status, told) in [("", "kernel"), ("failed: no such file\n", "no such file")] {
            let why = parse(status).unwrap_err();
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
