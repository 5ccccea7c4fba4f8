// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs inferences, on the CPU and with the delegate.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::TeflonArgs;
use super::guest::{DELEGATE, RUNTIME};
use super::values::OutputTensor;
use crate::arch::Arch;
use crate::debian::Sysroot;
use crate::{build, paths, process};

/// The packages with the delegate and with the runtime that it is loaded into.
const PACKAGES: [&str; 2] = ["mesa-teflon-delegate", "libtensorflow-lite2.14.1"];

/// The only architecture of the delegate.
pub(super) const ARCH: Arch = Arch::Arm64;

/// Time to compile infer.c.
const COMPILE_LIMIT: Duration = Duration::from_secs(60);

/// Added to a signal's number in the exit code of `npu-probe run`.
const SIGNAL_CODE: i32 = 128;

/// The programs that every inference needs, and where it puts files.
#[derive(Debug)]
pub(super) struct InferenceRunner {
    directory: PathBuf,
    pub(super) sysroot: Sysroot,
    pub(super) client: PathBuf,
    preload: PathBuf,
    probe: PathBuf,
    limit: Duration,
}

/// What an inference gave.
#[derive(Debug)]
pub(super) struct Inference {
    /// Time to prepare the network, with the delegate's compilation, milliseconds.
    pub(super) prepared: f64,
    /// Time to compute it once, milliseconds.
    pub(super) computed: f64,
    pub(super) outputs: Vec<OutputTensor>,
    /// What program, TensorFlow Lite and delegate wrote to stderr.
    pub(super) stderr: String,
}

impl InferenceRunner {
    pub(super) fn prepare(args: &TeflonArgs) -> Result<Self> {
        let directory = paths::target().join("teflon");
        fs::create_dir_all(&directory).context("making the directory")?;
        let place = directory.join(&args.suite);
        let sysroot = Sysroot::prepare(&place, &PACKAGES, &args.suite, ARCH, args.refresh)?;
        let client = directory.join("infer");
        let mut compile = Command::new(if ARCH.is_native() {
            "cc".to_owned()
        } else {
            ARCH.cross_linker()
        });
        compile
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&client)
            .arg(paths::root().join("xtask/src/teflon/infer.c"))
            .arg("-ldl");
        process::run(compile, COMPILE_LIMIT)?.checked("compiling infer.c")?;
        Ok(Self {
            directory,
            sysroot,
            client,
            preload: build::preload(ARCH)?,
            probe: build::probe()?,
            limit: Duration::from_secs(args.limit),
        })
    }

    /// The file of the network `name` with this extension.
    pub(super) fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{name}.{extension}"))
    }

    /// Computes the network `name`, whose model and input are written, by
    /// TensorFlow Lite alone.
    pub(super) fn on_cpu(&self, name: &str) -> Result<Inference> {
        let what = "TensorFlow Lite without the delegate";
        self.infer(name, "cpu", what, self.emulated(), &[])
    }

    /// Computes it with the delegate on the model; `options` are those of
    /// `npu-probe run`, which writes its report.
    pub(super) fn on_npu(&self, name: &str, options: &[&str]) -> Result<Inference> {
        let mut probed = Command::new(&self.probe);
        probed.arg("run").args(options).arg("--preload");
        probed.arg(&self.preload).arg("--report");
        probed.arg(self.file(name, "report")).arg("--");
        let emulated = self.emulated();
        probed.arg(emulated.get_program()).args(emulated.get_args());
        // Has the delegate list the operators.
        probed.env("TEFLON_DEBUG", "verbose");
        let delegate = self.sysroot.root().join(DELEGATE);
        self.infer(name, "npu", "the delegate", probed, &[&delegate])
    }

    /// The start of a command line that runs a program of the sysroot.
    fn emulated(&self) -> Command {
        let mut command = ARCH.command(&self.sysroot.loader().unwrap_or_default());
        command
            .arg("--library-path")
            .arg(self.sysroot.libraries())
            .arg(&self.client);
        command
    }

    /// Runs the client by `command`.
    fn infer(
        &self,
        name: &str,
        side: &str,
        what: &str,
        mut command: Command,
        more: &[&Path],
    ) -> Result<Inference> {
        let output = self.file(name, side);
        command
            .arg(self.sysroot.libraries().join(RUNTIME))
            .arg(self.file(name, "tflite"))
            .arg(self.file(name, "input"))
            .arg(&output)
            .args(more);
        let ended = process::run(command, self.limit).with_context(|| {
            let limit = self.limit.as_secs();
            format!("{what} did not end in {limit} s, which --limit sets")
        })?;
        if let Some(signal) = crash(ended.status) {
            bail!("{what} crashed, {signal}; its last lines: {}", ended.tail());
        }
        let ended = ended.checked(what)?;
        let bytes = fs::read(&output).context("reading the output")?;
        parse(&ended.text(), &bytes, ended.stderr)
    }
}

/// How a signal ended a program, be it below `npu-probe run`.
fn crash(status: ExitStatus) -> Option<ExitStatus> {
    let code = status.code().filter(|&code| code > SIGNAL_CODE);
    let signal = status.signal().or_else(|| Some(code? - SIGNAL_CODE));
    signal.map(ExitStatus::from_raw)
}

/// What infer.c printed, and the outputs that it wrote.
fn parse(text: &str, mut bytes: &[u8], stderr: String) -> Result<Inference> {
    let mut lines = text.lines();
    let times = lines.next().and_then(|line| line.split_once(' '));
    let (prepared, computed) = times.context("infer printed no times")?;
    let mut outputs = Vec::new();
    for line in lines {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().context("infer printed half a line");
        let (kind, length, scale) = (word()?, word()?.parse()?, word()?.parse()?);
        let name = word()?.to_owned();
        let (own, rest) = bytes
            .split_at_checked(length)
            .context("outputs are missing")?;
        bytes = rest;
        outputs.push(OutputTensor::new(name, kind, scale, own));
    }
    ensure!(
        bytes.is_empty() && !outputs.is_empty(),
        "infer told not all outputs"
    );
    Ok(Inference {
        prepared: prepared.parse()?,
        computed: computed.parse()?,
        outputs,
        stderr,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_told_apart() {
        let text = "2.5 1.0\nUINT8 2 0.5 a b\nFLOAT32 4 0 \n";
        let bytes = [7, 8, 0, 0, 128, 63];
        let inference = parse(text, &bytes, String::new()).unwrap();
        assert_eq!((inference.prepared, inference.computed), (2.5, 1.0));
        let [first, second] = &inference.outputs[..] else {
            panic!("{inference:?}");
        };
        assert_eq!((&*first.name, &first.values[..]), ("a b", &[7.0, 8.0][..]));
        assert_eq!(second.values, [1.0]);
        parse(text, &bytes[1..], String::new()).unwrap_err();
        parse("2.5 1.0\n", &[], String::new()).unwrap_err();
    }

    #[test]
    fn a_crash_is_known_below_npu_probe_too() {
        let told = |raw| crash(ExitStatus::from_raw(raw)).map(|crash| crash.to_string());
        assert_eq!(told(11), told((128 + 11) << 8));
        assert!(told(11).unwrap().contains("SIGSEGV"));
        assert_eq!(told(1 << 8), None);
    }
}
