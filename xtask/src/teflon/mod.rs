// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask teflon`: Mesa's TensorFlow Lite delegate, as Debian ships it,
//! on the model.
//!
//! The delegate is an unmodified client that shares no code with this project:
//! its own ioctls, its own register programs. It meets the model through the
//! preload library, computes small networks, and is compared with TensorFlow
//! Lite's own arithmetic. Debian builds it for arm64 only; elsewhere it runs
//! under qemu-user, the model's server natively. In a virtual machine, the real
//! driver takes the place of the preload library.

mod guest;
mod network;
mod tflite;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use guest::{DELEGATE, GuestDelegate, RUNTIME};
use network::Network;

use crate::arch::Arch;
use crate::debian::Sysroot;
use crate::process;
use crate::report::{CheckVerdict, VerdictTally};
use crate::{build, paths};

/// The packages with the delegate and with the runtime that it is loaded into.
const PACKAGES: [&str; 2] = ["mesa-teflon-delegate", "libtensorflow-lite2.14.1"];

/// The only architecture of the delegate.
const ARCH: Arch = Arch::Arm64;

/// The most by which an output may differ from TensorFlow Lite's: each rounds
/// in its own way, and layers pass it on.
const TOLERANCE: u8 = 2;

/// An output with no more different values than this is not believed.
const FEW_VALUES: usize = 16;

const LIMIT: Duration = Duration::from_secs(300);

/// Options of `cargo xtask teflon`.
#[derive(Debug, clap::Args)]
pub(crate) struct TeflonArgs {
    /// Debian suite to take the delegate from
    #[arg(long, default_value = "sid")]
    suite: String,
    /// Run only this network
    #[arg(long)]
    only: Option<String>,
    /// Seed of weights and inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run the delegate on the real driver too, in a virtual machine (docs/vm.md)
    #[arg(long)]
    real_driver: bool,
    /// Fetch the packages again, even if they are less than a day old
    #[arg(long)]
    refresh: bool,
}

/// Runs all networks; an error if one went wrong.
pub(crate) fn run(args: &TeflonArgs) -> Result<()> {
    let mut report = VerdictTally::default();
    let mut networks = network::all(args.seed);
    if let Some(only) = &args.only {
        networks.retain(|network| network.name == only);
        ensure!(!networks.is_empty(), "there is no network `{only}`");
    }
    let missing = ARCH.missing_program(&[]);
    let runner = match &missing {
        Some(_) => None,
        None => Some(NetworkRunner::prepare(args)),
    };
    for network in &networks {
        match (&runner, &missing) {
            (Some(Ok(runner)), _) => report.add(network.name, runner.check(network, args.seed)),
            (Some(Err(error)), _) => report.error(network.name, error),
            (None, missing) => {
                let missing = missing.as_deref().unwrap_or_default();
                let why = format!("needs the program {missing}, which this machine does not have");
                report.add(network.name, Ok(CheckVerdict::Skip(why)));
            }
        }
    }
    println!("\n{}", report.closing_line());
    if report.failed() > 0 {
        bail!("{} networks failed", report.failed());
    }
    Ok(())
}

/// The part of `npu-probe run`'s report that is checked.
#[derive(Debug, serde::Deserialize)]
struct Told {
    jobs: u64,
    jobs_completed: u64,
    tasks: u64,
    /// Tasks that met a trap, by its identifier.
    traps: BTreeMap<String, u64>,
}

/// The programs that every run of a network needs, and where it puts files.
#[derive(Debug)]
struct NetworkRunner {
    directory: PathBuf,
    sysroot: Sysroot,
    client: PathBuf,
    preload: PathBuf,
    probe: PathBuf,
    driver: Option<GuestDelegate>,
}

impl NetworkRunner {
    fn prepare(args: &TeflonArgs) -> Result<Self> {
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
        process::run(compile, LIMIT)?.checked("compiling infer.c")?;
        let driver = args
            .real_driver
            .then(|| GuestDelegate::prepare(&sysroot, &client))
            .transpose()?;
        Ok(Self {
            directory,
            sysroot,
            client,
            preload: build::preload(ARCH)?,
            probe: build::probe()?,
            driver,
        })
    }

    /// One network on the CPU, on the model, and on the real driver if it is there.
    fn check(&self, network: &Network, seed: u64) -> Result<CheckVerdict> {
        let model = self.file(network, "tflite");
        fs::write(&model, tflite::write(network)).context("writing the model")?;
        let [height, width, channels] = network.input;
        let mut bytes = vec![0; (height * width * channels) as usize];
        Rng::with_seed(seed).fill(&mut bytes);
        fs::write(self.file(network, "input"), bytes).context("writing the input")?;

        let cpu = self.infer(network, "cpu", self.emulated(), &[])?;
        let mut probed = Command::new(&self.probe);
        probed
            .args(["run", "--json", "--preload"])
            .arg(&self.preload)
            .arg("--report")
            .arg(self.file(network, "report"))
            .arg("--");
        let emulated = self.emulated();
        probed.arg(emulated.get_program()).args(emulated.get_args());
        let delegate = self.sysroot.root().join(DELEGATE);
        let npu = self.infer(network, "npu", probed, &[&delegate])?;

        let told: Told = serde_json::from_slice(&fs::read(self.file(network, "report"))?)
            .context("reading npu-probe's report")?;
        ensure!(told.jobs_completed > 0, "the delegate ran no job");
        ensure!(
            told.jobs_completed == told.jobs,
            "not all went well: {told:?}"
        );
        let traps: Vec<_> = told.traps.keys().map(String::as_str).collect();
        ensure!(
            traps == Vec::from_iter(network.trap),
            "traps {traps:?}, not {:?}",
            network.trap
        );
        let seen = match network.trap {
            Some(trap) => format!("the model met {trap}"),
            None => compare(&cpu, &npu)?,
        };
        let same = match &self.driver {
            Some(driver) => {
                self.check_driver(driver, network, &npu, told.tasks)?;
                "; the same on the real driver"
            }
            None => "",
        };
        Ok(CheckVerdict::Pass(format!(
            "{} tasks in {} jobs; {seen}{same}",
            told.tasks, told.jobs
        )))
    }

    /// The same network on the real driver: as many tasks, the same outputs.
    fn check_driver(
        &self,
        driver: &GuestDelegate,
        network: &Network,
        npu: &[u8],
        tasks: u64,
    ) -> Result<()> {
        let [model, input] = ["tflite", "input"].map(|extension| self.file(network, extension));
        let inferred = driver.infer(&model, &input)?;
        ensure!(
            inferred.interrupts == tasks,
            "{} interrupts of the NPU on the real driver, {tasks} tasks on the model",
            inferred.interrupts
        );
        let differing = npu.iter().zip(&inferred.output).filter(|(a, b)| a != b);
        ensure!(
            inferred.output == npu,
            "on the real driver {} outputs, of which {} are not the model's",
            inferred.output.len(),
            differing.count()
        );
        Ok(())
    }

    fn file(&self, network: &Network, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", network.name))
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

    /// Runs the client by `command`; returns the output.
    fn infer(
        &self,
        network: &Network,
        side: &str,
        mut command: Command,
        more: &[&Path],
    ) -> Result<Vec<u8>> {
        let output = self.file(network, side);
        command
            .arg(self.sysroot.libraries().join(RUNTIME))
            .arg(self.file(network, "tflite"))
            .arg(self.file(network, "input"))
            .arg(&output)
            .args(more);
        process::run(command, LIMIT)?.checked(side)?;
        fs::read(&output).context("reading the output")
    }
}

/// Compares the outputs of both sides; says what was seen.
fn compare(cpu: &[u8], npu: &[u8]) -> Result<String> {
    ensure!(cpu.len() == npu.len(), "outputs of different lengths");
    // An output of few values would agree with any other such.
    let distinct: BTreeSet<_> = npu.iter().collect();
    ensure!(distinct.len() > FEW_VALUES, "the outputs are {distinct:?}");
    let differences = cpu.iter().zip(npu).map(|(a, b)| a.abs_diff(*b));
    let worst = differences.clone().max().unwrap_or_default();
    let differing = differences.filter(|&difference| difference > 0).count();
    let seen = format!(
        "{differing} of {} outputs differ from TensorFlow Lite's, by up to {worst}",
        cpu.len()
    );
    ensure!(worst <= TOLERANCE, "{seen}");
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::network::LayerOperator;
    use super::*;

    #[test]
    fn outputs_must_be_alike_and_of_many_values() {
        let ramp: Vec<u8> = (0..=255).collect();
        assert!(compare(&ramp, &ramp).unwrap().starts_with("0 of 256"));
        let mut other = ramp.clone();
        other[7] += TOLERANCE;
        assert!(compare(&ramp, &other).unwrap().starts_with("1 of 256"));
        other[7] += 1;
        compare(&ramp, &other).unwrap_err();
        compare(&ramp, &ramp[1..]).unwrap_err();
        compare(&[7; 256], &[7; 256]).unwrap_err();
    }

    #[test]
    fn a_model_has_its_weights_and_its_identifier() {
        for network in network::all(1) {
            let file = tflite::write(&network);
            assert_eq!(&file[4..8], b"TFL3", "{}", network.name);
            for layer in &network.layers {
                let (LayerOperator::Convolution(kernels) | LayerOperator::Depthwise(kernels)) =
                    &layer.kind;
                let weights = &kernels.weights[..];
                assert!(file.windows(weights.len()).any(|part| part == weights));
            }
        }
    }
}
