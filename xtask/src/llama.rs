// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask llama`: checks Debian's stock llama.cpp with our backend.
//!
//! Builds `libggml-rocket.so`, fetches the binaries and a private Python environment, and runs the
//! checks of tests/llama with pytest.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use rocket_uapi::{Device, Selector};
use serde_json::json;

use crate::arch::Arch;
use crate::build::{self, CargoProfile};
use crate::debian::Sysroot;
use crate::process::run_checked;
use crate::{paths, python};

/// The packages of the programs that all checks use; apt adds their dependencies.
const PACKAGES: [&str; 6] = [
    "llama.cpp-examples",
    "llama.cpp-tools",
    "llama.cpp-tools-extra",
    "llama.cpp-tests",
    "libggml0",
    "libggml0-backend-rpc",
];
/// The check under valgrind, and its extra packages: valgrind needs the function names of the
/// dynamic loader.
const VALGRIND: (&str, [&str; 2]) = ("valgrind", ["libc6-dbg", "valgrind"]);
/// Prefix of the names of whisper.cpp's checks, and their extra packages.
const WHISPER: (&str, [&str; 1]) = ("whisper", ["whisper.cpp-tools"]);
/// The check of boards that differ; `npu-probe` imitates them.
const BOARDS: &str = "boards";
/// Checks that measure the shipped build.
const MEASURING: [&str; 3] = ["quality", "bench", "polling"];

/// Options that say which stock binaries are run, and on which device of ours.
#[derive(Debug, clap::Args)]
pub(crate) struct LlamaArgs {
    /// Debian's name of the architecture of the stock binaries [default: this
    /// machine's]
    #[arg(long, value_enum, default_value_t = Arch::native(), hide_default_value = true)]
    arch: Arch,
    /// Debian suite of the stock binaries
    #[arg(long, default_value = "sid")]
    suite: String,
    /// Device that the backend uses: model, a path, or auto (the kernel's device if
    /// there is one, else the model)
    #[arg(long, default_value = "auto")]
    device: String,
}

/// Options of `cargo xtask llama`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Run only these checks, such as `layers` for `test_layers` in tests/llama (some run
    /// only when they are named)
    #[arg(value_name = "CHECK")]
    only: Vec<String>,
    /// Write the measurements into docs/quality.md (quality), or the supported
    /// operations into the reference file (test-backend-ops)
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    args: LlamaArgs,
}

/// Runs the checks; an error if one failed. Prints failures with an external cause, which are no
/// errors, as `SKIP-EXTERNAL`.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let missing = args.args.arch.missing_program(&["python3"]);
    let command = || checks(&args.args, &args.only, args.record);
    python::pytest("llama", missing, command, &[])
}

/// `cargo xtask demo`: has the stock llama-completion continue a story twice, without and with our
/// backend. An error if nothing was offloaded.
pub(crate) fn demo(args: &LlamaArgs) -> Result<()> {
    // No check, so nothing is fetched or built for single checks.
    let only = ["demo".to_owned()];
    run_checked(checks(args, &only, false)?.arg("demo.py"))
}

/// Runs `script` of tests/llama, which makes the model `name`; returns its file.
pub(crate) fn model(script: &str, name: &str) -> Result<PathBuf> {
    let folder = std::path::absolute(paths::target().join("llama"))?;
    std::fs::create_dir_all(&folder)?;
    let model = folder.join(name);
    run_checked(python::command("llama")?.arg(script).arg(&model))?;
    Ok(model)
}

/// A Python command line in tests/llama, with all paths and settings that tests/llama/options.py
/// reads.
fn checks(args: &LlamaArgs, only: &[String], record: bool) -> Result<Command> {
    let arch = args.arch;
    let has = |name: &str| only.iter().any(|check| check == name);
    let profile = if MEASURING.into_iter().any(has) {
        CargoProfile::Dist
    } else {
        CargoProfile::Release
    };
    let library = build::backend(arch, profile)?;
    let unpack = |suffix: &str, packages: &[&str]| -> Result<Sysroot> {
        let place = paths::target().join(format!("llama/{}-{arch}{suffix}", args.suite));
        Sysroot::prepare(&place, packages, &args.suite, arch)
    };
    let packages = unpack("", &PACKAGES)?;
    let if_asked = |is_asked: bool, suffix, packages: &[&str]| {
        is_asked
            .then(|| unpack(suffix, packages))
            .and_then(|packages| packages.inspect_err(|error| println!("{error:#}")).ok())
    };
    let for_valgrind = if_asked(has(VALGRIND.0) && arch.is_native(), "-debug", &VALGRIND.1);
    let hears = only.is_empty() || only.iter().any(|check| check.starts_with(WHISPER.0));
    let for_whisper = if_asked(hears, "-whisper", &WHISPER.1);
    let probe = has(BOARDS).then(build::probe).transpose()?;
    let has_npu = Device::discover().is_ok();
    // The backend's `auto` never selects the software model.
    let device = match Selector::from(args.device.as_ref()) {
        Selector::Auto if !has_npu => Selector::Model,
        selector => selector,
    };
    let options = json!({
        "checks": only,
        "record": record,
        "arch": arch.debian(),
        "native": arch.is_native(),
        "triplet": arch.triplet(),
        "loader": packages.loader()?,
        "emulator": if arch.is_native() { &[] } else { arch.emulator() },
        "compiler": arch.compiler(),
        "suite": args.suite,
        "device": device.to_string(),
        "has_npu": has_npu,
        "library": library,
        "probe": probe,
        "xtask": env::current_exe()?,
        "target": paths::target(),
        "packages": packages.root(),
        "debug_packages": for_valgrind.as_ref().map(Sysroot::root),
        "whisper_packages": for_whisper.as_ref().map(Sysroot::root),
    });
    let mut command = python::command("llama")?;
    command.env("ROCKET_LLAMA", options.to_string());
    Ok(command)
}
