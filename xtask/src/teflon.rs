// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask teflon`: checks Mesa's TensorFlow Lite delegate, as in Debian, on the model.
//!
//! The delegate is an unmodified client with its own ioctls and register programs; it shares no
//! code with this project. It uses the model through the preload library and computes small
//! networks. The results are compared with TensorFlow Lite's own. Debian builds the delegate for
//! arm64 only. Elsewhere it runs under qemu-user, and the model's server natively. In a virtual
//! machine the real driver replaces the preload library. The checks are in tests/teflon.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::arch::Arch;
use crate::debian::Sysroot;
use crate::process::run_checked;
use crate::{build, paths, python};

/// The packages of the delegate and of the runtime that loads it.
const PACKAGES: [&str; 2] = ["mesa-teflon-delegate", "libtensorflow-lite2.14.1"];

/// The only architecture of the delegate.
const ARCH: Arch = Arch::Arm64;

/// Options of `cargo xtask teflon`.
#[derive(Debug, clap::Args)]
pub(crate) struct TeflonArgs {
    /// Debian suite of the delegate
    #[arg(long, default_value = "sid")]
    suite: String,
    /// Run this TensorFlow Lite model (a .tflite file) instead of the project's networks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "real_driver"])]
    model: Option<PathBuf>,
    /// Input of the model: a byte for each value; a float is the byte divided by 256 [default:
    /// random]
    #[arg(long, value_name = "FILE", requires = "model")]
    input: Option<PathBuf>,
    /// Time limit of an inference, seconds
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
}

/// Runs the user's model, or all networks; an error if one failed.
pub(crate) fn run(args: &TeflonArgs) -> Result<()> {
    let missing = ARCH.missing_program(&["python3"]);
    match (&args.model, missing) {
        (Some(_), Some(missing)) => bail!("this machine does not have the program {missing}"),
        (Some(_), None) => run_checked(command(args)?.arg("own.py")),
        (None, missing) => {
            let test = |name| format!("test_networks.py::test_network[{name}]");
            let only: Vec<_> = args.only.iter().map(test).collect();
            python::pytest("teflon", missing, || command(args), &only)
        }
    }
}

/// A Python command line in tests/teflon, with all paths and settings that
/// tests/teflon/inference.py reads.
fn command(args: &TeflonArgs) -> Result<Command> {
    let place = paths::target().join("teflon").join(&args.suite);
    let packages = Sysroot::prepare(&place, &PACKAGES, &args.suite, ARCH)?;
    let whole = |file: &PathBuf| {
        fs::canonicalize(file).with_context(|| format!("reading {}", file.display()))
    };
    let options = json!({
        "triplet": ARCH.triplet(),
        "loader": packages.loader()?,
        "emulator": if ARCH.is_native() { &[] } else { ARCH.emulator() },
        "compiler": ARCH.compiler(),
        "packages": packages.root(),
        "target": paths::target(),
        "preload": build::preload(ARCH)?,
        "probe": build::probe()?,
        "xtask": env::current_exe()?,
        "model": args.model.as_ref().map(whole).transpose()?,
        "input": args.input.as_ref().map(whole).transpose()?,
        "limit": args.limit,
        "seed": args.seed,
        "real_driver": args.real_driver,
    });
    let mut command = python::command("teflon")?;
    command.env("ROCKET_TEFLON", options.to_string());
    Ok(command)
}
