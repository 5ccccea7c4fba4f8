// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask instructions`: how many aarch64 instructions each CPU kernel
//! executes for an element.
//!
//! QEMU's user emulator, told to translate one instruction at a time and to
//! log each translation that it executes, prints a line for each instruction.
//! A program that runs a kernel twice has one run more of them than one that
//! runs it once. QEMU's own counter is a plugin, which Debian's package leaves
//! out and a static emulator could not load.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::arch::{Arch, first_missing};
use crate::generated::replace_section;
use crate::process::{self, ReaderThread};
use crate::{build, paths};

/// Name of the section of docs/matmul-figures.md that the table stands in.
pub(crate) const SECTION: &str = "instructions";

/// The page that has the table.
pub(crate) const PAGE: &str = "docs/matmul-figures.md";

/// The architecture whose instructions are counted: the board's.
const ARCH: Arch = Arch::Arm64;

/// How long a program may run: hundreds of thousands of lines come in a second.
const LIMIT: Duration = Duration::from_secs(600);

/// What a line of an executed translation begins with: `-d exec` of QEMU's
/// documentation (invocation, "log items").
const EXECUTED: &str = "Trace ";

/// The bits of a translation's flags, the last number of its line, that say how
/// many instructions it has at most; 0 says nothing (`CF_COUNT_MASK` of QEMU's
/// include/exec).
const COUNT_MASK: u32 = 0x1ff;

/// Options of `cargo xtask instructions`.
#[derive(clap::Args, Debug)]
pub(crate) struct InstructionsArgs {
    /// Only kernels whose name contains this
    kernel: Option<String>,
    /// Write the table into docs/matmul-figures.md
    #[arg(long, conflicts_with = "kernel")]
    record: bool,
}

/// A kernel, as `kernel-runs` lists it.
#[derive(Debug, PartialEq)]
struct Kernel {
    name: String,
    elements: u64,
    bytes: u64,
}

/// Counts, prints, and writes the table if told to.
pub(crate) fn run(args: &InstructionsArgs) -> Result<()> {
    let mut programs = vec![ARCH.emulator()[0].to_owned()];
    if !ARCH.is_native() {
        programs.push(ARCH.cross_linker());
    }
    if let Some(missing) = first_missing(programs) {
        bail!("no `{missing}` on this machine");
    }
    let program = build::kernel_runs(ARCH)?;
    let listed = process::run(emulator(&program), LIMIT)?.checked("listing the kernels")?;
    let mut table = String::from(
        "| kernel | instructions per element | bytes read and written per element |\n|---|---|---|\n",
    );
    for kernel in chosen(kernels(&listed.text())?, args.kernel.as_deref())? {
        let executed = executed_by_one_run(&program, &kernel.name)?;
        let row = format!(
            "| {} | {:.2} | {:.1} |",
            kernel.name,
            executed as f64 / kernel.elements as f64,
            kernel.bytes as f64 / kernel.elements as f64,
        );
        println!("{row}");
        writeln!(table, "{row}")?;
    }
    let page = format!("{}\n\n{table}", conditions()?);
    if !args.record {
        return Ok(());
    }
    let path = paths::root().join(PAGE);
    let present = paths::text(&path)?;
    fs::write(&path, replace_section(&present, SECTION, &page)?)
        .with_context(|| format!("writing {}", path.display()))
}

/// A sentence that names the emulator and the compiler of the counts.
fn conditions() -> Result<String> {
    let first_line = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version");
        let output = process::run(command, LIMIT)?.checked(program)?;
        let text = output.text();
        text.lines()
            .next()
            .map(str::to_owned)
            .with_context(|| format!("`{program} --version` says nothing"))
    };
    Ok(format!(
        "Counted with {}, `{}`, the `dist` build by {}.",
        first_line(ARCH.emulator()[0])?,
        ARCH.emulator()[1..].join(" "),
        first_line("rustc")?,
    ))
}

/// The emulator with `program`.
fn emulator(program: &Path) -> Command {
    let (emulator, arguments) = ARCH.emulator().split_first().unwrap_or((&"", &[]));
    let mut command = Command::new(emulator);
    command.args(arguments);
    if !ARCH.is_native() {
        // Where Debian keeps the C library of another architecture.
        command.args(["-L", &format!("/usr/{}", ARCH.triplet())]);
    }
    command.arg(program);
    command
}

/// The kernels in the list: elements, bytes and name in a line.
fn kernels(list: &str) -> Result<Vec<Kernel>> {
    let kernel = |line: &str| {
        let (elements, rest) = line.split_once(' ')?;
        let (bytes, name) = rest.split_once(' ')?;
        Some(Kernel {
            name: name.to_owned(),
            elements: elements.parse().ok().filter(|&elements| elements > 0)?,
            bytes: bytes.parse().ok()?,
        })
    };
    list.lines()
        .map(|line| kernel(line).with_context(|| format!("no kernel: `{line}`")))
        .collect()
}

/// Those of `kernels` whose name contains `part`; all without one.
fn chosen(mut kernels: Vec<Kernel>, part: Option<&str>) -> Result<Vec<Kernel>> {
    let part = part.unwrap_or_default();
    let names: Vec<String> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
    kernels.retain(|kernel| kernel.name.contains(part));
    ensure!(
        !kernels.is_empty(),
        "no kernel's name contains `{part}`; there are: {}",
        names.join("; ")
    );
    Ok(kernels)
}

/// The instructions of one run, without those around it.
fn executed_by_one_run(program: &Path, kernel: &str) -> Result<u64> {
    let once = executed(program, kernel, 1)?;
    let twice = executed(program, kernel, 2)?;
    twice
        .checked_sub(once)
        .with_context(|| format!("{kernel}: {twice} instructions for two runs, {once} for one"))
}

/// The instructions of a program that runs a kernel so many times.
fn executed(program: &Path, kernel: &str, times: u32) -> Result<u64> {
    let mut command = emulator(program);
    command
        .args([kernel, &times.to_string()])
        // The name of the switch depends on QEMU's version; these do not hurt.
        .env("QEMU_SINGLESTEP", "1")
        .env("QEMU_ONE_INSN_PER_TB", "1")
        .env("QEMU_LOG", "nochain,exec")
        .env("QEMU_LOG_FILENAME", "/dev/stdout")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("starting the emulator")?;
    let lines = child.stdout.take().context("the emulator's log")?;
    let end = Instant::now() + LIMIT;
    let counting = ReaderThread::start(move || count(BufReader::new(lines)));
    let errors = process::collect(child.stderr.take());
    let status = process::wait(&mut child, LIMIT)?;
    let counted = counting.result(end).context("counting")??;
    let errors = errors.result(end).context("reading errors")?;
    ensure!(
        status.success(),
        "{kernel}: {status}: {}",
        String::from_utf8_lossy(&errors).trim()
    );
    Ok(counted)
}

/// The executed instructions of a log, all of them translated alone.
fn count(mut log: impl BufRead) -> Result<u64> {
    let mut counted = 0;
    let mut line = Vec::new();
    while log.read_until(b'\n', &mut line)? > 0 {
        if line.starts_with(EXECUTED.as_bytes()) {
            ensure!(
                instructions_at_most(&line) == Some(1),
                "the emulator did not go by single instructions: `{}`",
                String::from_utf8_lossy(&line).trim()
            );
            counted += 1;
        }
        line.clear();
    }
    ensure!(counted > 0, "the emulator logged no instruction");
    Ok(counted)
}

/// How many instructions the translation of a line has at most, if it says so:
/// `Trace CPU: HOST [BASE/ADDRESS/FLAGS/FLAGS] SYMBOL`.
fn instructions_at_most(line: &[u8]) -> Option<u32> {
    let end = line.iter().position(|&byte| byte == b']')?;
    let start = line[..end].iter().rposition(|&byte| byte == b'/')? + 1;
    let flags = std::str::from_utf8(&line[start..end]).ok()?;
    let count = u32::from_str_radix(flags, 16).ok()? & COUNT_MASK;
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a log as QEMU 7.2 wrote it.
    const ALONE: &str =
        "Trace 0: 0x7f46 [0000000001009331/00000000004000d4/00000001/00000201] main\n";
    const SEVERAL: &str =
        "Trace 0: 0x7f46 [0000000001009331/00000000004000d4/00000001/00000200] \n";
    const STOPPED: &str = "Stopped execution of TB chain before 0x7f46 [00000000004000d4] \n";

    #[test]
    fn executed_instructions_are_counted() {
        let log = [ALONE, STOPPED, ALONE, "\n", ALONE].concat();
        assert_eq!(count(log.as_bytes()).unwrap(), 3);
    }

    #[test]
    fn other_logs_are_refused() {
        for log in [SEVERAL, STOPPED, "", "Trace of something"] {
            assert!(count(log.as_bytes()).is_err(), "{log}");
        }
    }

    #[test]
    fn the_list_is_read() {
        let expected = Kernel {
            name: "unpack int32, add".into(),
            elements: 4,
            bytes: 48,
        };
        assert_eq!(kernels("4 48 unpack int32, add\n").unwrap(), [expected]);
        assert!(kernels("0 48 nothing\n").is_err());
        assert!(kernels("4 pack\n").is_err());
    }

    #[test]
    fn a_name_that_no_kernel_has_is_refused() {
        let listed = || kernels("4 48 unpack int32, add\n2 8 pack f16\n").unwrap();
        assert_eq!(chosen(listed(), None).unwrap(), listed());
        assert_eq!(chosen(listed(), Some("f16")).unwrap(), listed()[1..]);
        let error = chosen(listed(), Some("f17")).unwrap_err().to_string();
        assert!(
            error.contains("f17") && error.contains("pack f16"),
            "{error}"
        );
        assert!(chosen(Vec::new(), None).is_err());
    }
}
