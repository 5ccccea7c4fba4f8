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
mod own;
mod runner;
mod tflite;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use guest::GuestDelegate;
use network::Network;
use runner::{ARCH, InferenceRunner};
use values::OutputTensor;

use crate::report::{CheckVerdict, VerdictTally};

/// The most by which an output may differ from TensorFlow Lite's: each rounds
/// in its own way, and layers pass it on.
const TOLERANCE: f64 = 2.0;

/// An output with no more different values than this is not believed.
const FEW_VALUES: usize = 16;

/// Options of `cargo xtask teflon`.
#[derive(Debug, clap::Args)]
pub(crate) struct TeflonArgs {
    /// Debian suite to take the delegate from
    #[arg(long, default_value = "sid")]
    suite: String,
    /// Run this TensorFlow Lite model (a .tflite file) instead of the project's networks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "real_driver"])]
    model: Option<PathBuf>,
    /// Input of the model: a byte for each value, a float being a 256th of it [default: random]
    #[arg(long, value_name = "FILE", requires = "model")]
    input: Option<PathBuf>,
    /// Seconds that an inference may take
    #[arg(long, default_value_t = 300)]
    limit: u64,
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

/// Runs the user's model, or all networks; an error if one went wrong.
pub(crate) fn run(args: &TeflonArgs) -> Result<()> {
    if let Some(model) = &args.model {
        return own::run(args, model);
    }
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

/// Runs networks, on the real driver too if it is there.
#[derive(Debug)]
struct NetworkRunner {
    runner: InferenceRunner,
    driver: Option<GuestDelegate>,
}

impl NetworkRunner {
    fn prepare(args: &TeflonArgs) -> Result<Self> {
        let runner = InferenceRunner::prepare(args)?;
        let driver = args
            .real_driver
            .then(|| GuestDelegate::prepare(&runner.sysroot, &runner.client))
            .transpose()?;
        Ok(Self { runner, driver })
    }

    /// One network on the CPU, on the model, and on the real driver if it is there.
    fn check(&self, network: &Network, seed: u64) -> Result<CheckVerdict> {
        let file = |extension| self.runner.file(network.name, extension);
        fs::write(file("tflite"), tflite::write(network)).context("writing the model")?;
        let [height, width, channels] = network.input;
        let mut bytes = vec![0; (height * width * channels) as usize];
        Rng::with_seed(seed).fill(&mut bytes);
        fs::write(file("input"), bytes).context("writing the input")?;

        let cpu = self.runner.on_cpu(network.name)?;
        let npu = self.runner.on_npu(network.name, &["--json"])?;
        let told: Told = serde_json::from_slice(&fs::read(file("report"))?)
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
            None => compare(&cpu.outputs[0], &npu.outputs[0])?,
        };
        let same = match &self.driver {
            Some(driver) => {
                self.check_driver(driver, network, told.tasks)?;
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
    fn check_driver(&self, driver: &GuestDelegate, network: &Network, tasks: u64) -> Result<()> {
        let file = |extension| self.runner.file(network.name, extension);
        let [model, input] = ["tflite", "input"].map(file);
        let npu = fs::read(file("npu")).context("reading the output")?;
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
}

/// Compares the outputs of both sides; says what was seen.
fn compare(cpu: &OutputTensor, npu: &OutputTensor) -> Result<String> {
    // An output of few values would agree with any other such.
    let distinct: BTreeSet<_> = npu.values.iter().map(|value| value.to_bits()).collect();
    ensure!(
        distinct.len() > FEW_VALUES,
        "the outputs have {} values",
        distinct.len()
    );
    let seen = cpu.difference(npu)?;
    ensure!(seen.largest <= TOLERANCE, "{seen}");
    Ok(seen.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_must_be_alike_and_of_many_values() {
        let tensor = |bytes: &[u8]| OutputTensor::new(String::new(), "UINT8", 1.0, bytes);
        let ramp: Vec<u8> = (0..=255).collect();
        let mut other = ramp.clone();
        other[7] += TOLERANCE as u8;
        let seen = compare(&tensor(&ramp), &tensor(&other)).unwrap();
        assert!(seen.starts_with("1 of 256"), "{seen}");
        other[7] += 1;
        compare(&tensor(&ramp), &tensor(&other)).unwrap_err();
        compare(&tensor(&[7; 256]), &tensor(&[7; 256])).unwrap_err();
    }

    #[test]
    fn a_model_has_its_weights_and_its_identifier() {
        for network in network::all(1) {
            let file = tflite::write(&network);
            assert_eq!(&file[4..8], b"TFL3", "{}", network.name);
            for layer in &network.layers {
                let weights = &layer.weights[..];
                assert!(file.windows(weights.len()).any(|part| part == weights));
            }
        }
    }
}
