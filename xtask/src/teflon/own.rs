// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user's own network through the delegate.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;

use super::TeflonArgs;
use super::runner::{ARCH, InferenceRunner};
use super::tflite::IDENTIFIER;

/// Name of its files.
const NAME: &str = "own";

/// Random bytes that are its input, from the start again if it takes more.
const INPUT_BYTES: usize = 1 << 20;

/// Runs the model and prints what was seen; an error if it did not run.
pub(super) fn run(args: &TeflonArgs, file: &Path) -> Result<()> {
    let model = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let identifier = model.get(4..).unwrap_or_default();
    ensure!(
        identifier.starts_with(IDENTIFIER.as_bytes()),
        "{} is not a TensorFlow Lite model: {IDENTIFIER} is missing after its first four bytes",
        file.display()
    );
    let input = match &args.input {
        Some(file) => fs::read(file).with_context(|| format!("reading {}", file.display()))?,
        None => {
            let mut bytes = vec![0; INPUT_BYTES];
            Rng::with_seed(args.seed).fill(&mut bytes);
            bytes
        }
    };
    ensure!(!input.is_empty(), "the input is empty");
    if let Some(missing) = ARCH.missing_program(&[]) {
        return Err(anyhow!("this machine does not have the program {missing}"));
    }
    let runner = InferenceRunner::prepare(args)?;
    fs::write(runner.file(NAME, "tflite"), model).context("writing the model")?;
    fs::write(runner.file(NAME, "input"), input).context("writing the input")?;

    let cpu = runner.on_cpu(NAME)?;
    let npu = runner.on_npu(NAME, &[]).context(
        "the delegate did not run this network; docs/teflon.md lists what is known to stop it",
    )?;
    let operators = Operators::listed(&npu.stderr);
    println!("{operators}");
    ensure!(
        operators.taken > 0,
        "the delegate takes no operator of this network: all ran on the CPU \
         (it takes uint8 convolutions with one scale per tensor)"
    );
    let report = fs::read_to_string(runner.file(NAME, "report"));
    print!("{}", report.context("reading npu-probe's report")?);
    let emulated = if ARCH.is_native() { "" } else { ", under qemu" };
    println!("time of this machine{emulated}, ms: prepare, compute");
    for (side, inference) in [("CPU alone", &cpu), ("delegate", &npu)] {
        println!(
            "{side:>10} {:9.1} {:9.1}",
            inference.prepared, inference.computed
        );
    }
    ensure!(
        cpu.outputs.len() == npu.outputs.len(),
        "outputs are missing"
    );
    for (cpu, npu) in cpu.outputs.iter().zip(&npu.outputs) {
        let unit = match cpu.scale {
            0.0 => String::new(),
            scale => format!(" steps of {scale}"),
        };
        println!("{}: {}{unit}", cpu.name, cpu.difference(npu)?);
    }
    Ok(())
}

/// The operators of a network, as the delegate sorts them.
#[derive(Debug, Default, PartialEq)]
struct Operators {
    taken: usize,
    /// Names of those that stay on the CPU.
    left: Vec<String>,
}

impl Operators {
    /// Reads the delegate's list: number, name, version, whether it is supported.
    fn listed(stderr: &str) -> Self {
        let mut operators = Self::default();
        for line in stderr.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                [_, _, _, "supported", "in:", ..] => operators.taken += 1,
                [_, name, _, "unsupported", "in:", ..] => operators.left.push(name.to_owned()),
                _ => (),
            }
        }
        operators
    }
}

impl std::fmt::Display for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = self.taken + self.left.len();
        write!(f, "{} of {of} operators on the NPU", self.taken)?;
        match &self.left[..] {
            [] => Ok(()),
            left => write!(f, ", on the CPU {}", left.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_on_either_side_are_counted() {
        let text = "idx type            ver support     inputs\n\
            \x20 0 CONV            v1  supported   in: 84(u8) 85(u8) 2(i32) out: 86(u8)\n\
            \x20 1 RESHAPE         v1  unsupported in: 86(u8) 1(i32) out: 87(u8)\n";
        let operators = Operators::listed(text).to_string();
        assert_eq!(operators, "1 of 2 operators on the NPU, on the CPU RESHAPE");
        assert_eq!(
            Operators::listed("").to_string(),
            "0 of 0 operators on the NPU"
        );
    }
}
