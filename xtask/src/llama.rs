// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask llama`: Debian's stock llama.cpp, with our backend loaded.
//!
//! Builds `libggml-rocket.so`, fetches the binaries and a private Python
//! environment, and has pytest run the checks of tests/llama.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result};
use npu_model::Selector;
use rocket_uapi::Device;
use serde_json::json;

use crate::arch::Arch;
use crate::build::{self, CargoProfile};
use crate::debian::Sysroot;
use crate::paths;
use crate::process::{self, run_checked};
use crate::report::{ExternalError, external};

/// The packages with the programs used here; apt adds what they need.
const PACKAGES: [&str; 5] = [
    "llama.cpp-examples",
    "llama.cpp-tools",
    "llama.cpp-tools-extra",
    "llama.cpp-tests",
    "libggml0",
];
/// The check under valgrind, and what it takes besides: valgrind needs the names of
/// functions within the dynamic loader.
const VALGRIND: (&str, [&str; 2]) = ("valgrind", ["libc6-dbg", "valgrind"]);
/// The check of whisper.cpp, and what it takes besides.
const WHISPER: (&str, [&str; 1]) = ("whisper", ["libwhisper1"]);
/// Checks that measure what is shipped.
const MEASURING: [&str; 2] = ["quality", "bench"];

const INSTALL_LIMIT: Duration = Duration::from_secs(600);

/// Options that say which stock binaries are run, and on which device of ours.
#[derive(Debug, clap::Args)]
pub(crate) struct LlamaArgs {
    /// Debian's name of the architecture of the stock binaries [default: this
    /// machine's]
    #[arg(long, value_enum, default_value_t = Arch::native(), hide_default_value = true)]
    arch: Arch,
    /// Debian suite to take them from
    #[arg(long, default_value = "sid")]
    suite: String,
    /// Device that the backend uses: model, a path, or auto (the kernel's device if
    /// there is one, else the model)
    #[arg(long, default_value = "auto")]
    device: String,
    /// Fetch the packages again, even if they are less than a day old
    #[arg(long)]
    refresh: bool,
}

/// Options of `cargo xtask llama`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Run only these checks, of those in docs/llama.md (some run only when they
    /// are named)
    #[arg(value_name = "CHECK")]
    only: Vec<String>,
    /// Write what was measured into docs/llama.md (quality, bench), or what is
    /// supported into the file that it is compared with (test-backend-ops)
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    args: LlamaArgs,
}

/// Runs the checks; an error if one failed. Prints what is outside of our control,
/// and is no failure, as `SKIP-EXTERNAL`.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    if let Some(missing) = args.args.arch.missing_program(&["python3"]) {
        println!("SKIP llama: needs the program {missing}, which this machine does not have");
        return Ok(());
    }
    match python(&args.args, &args.only, args.record) {
        Ok(mut python) => run_checked(python.args(["-m", "pytest"])),
        Err(error) if error.chain().any(|cause| cause.is::<ExternalError>()) => {
            println!("SKIP-EXTERNAL llama: {error:#}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// `cargo xtask demo`: has the stock llama-completion go on from a prompt twice, as it
/// comes and with our backend; an error if the texts differ, or nothing was offloaded.
pub(crate) fn demo(args: &LlamaArgs) -> Result<()> {
    run_checked(python(args, &[], false)?.arg("demo.py"))
}

/// Makes a model with a small vocabulary, in F16; returns its file.
pub(crate) fn tiny_model() -> Result<PathBuf> {
    let model = paths::target().join("llama/tiny-1-f16.gguf");
    let mut command = Command::new(environment()?);
    command.arg(tests().join("gguf_tiny.py")).arg(&model);
    process::run(command, INSTALL_LIMIT)?.checked("gguf_tiny.py")?;
    Ok(model)
}

/// The directory of the checks.
fn tests() -> PathBuf {
    paths::root().join("tests/llama")
}

/// A command line of Python beside the checks, which tells them of all that they take,
/// as tests/llama/options.py has it.
fn python(args: &LlamaArgs, checks: &[String], record: bool) -> Result<Command> {
    let arch = args.arch;
    let has = |name: &str| checks.iter().any(|check| check == name);
    let profile = match MEASURING.into_iter().any(has) {
        true => CargoProfile::Dist,
        false => CargoProfile::Release,
    };
    let library = build::backend(arch, profile)?;
    let python = environment()?;
    let unpack = |suffix: &str, packages: &[&str], refresh| -> Result<Sysroot> {
        let place = paths::target().join(format!("llama/{}-{arch}{suffix}", args.suite));
        Sysroot::prepare(&place, packages, &args.suite, arch, refresh)
    };
    let packages = unpack("", &PACKAGES, args.refresh)?;
    let if_asked = |is_asked: bool, suffix, packages: &[&str]| {
        is_asked
            .then(|| unpack(suffix, packages, false))
            .and_then(|packages| packages.inspect_err(|error| println!("{error:#}")).ok())
    };
    let for_valgrind = if_asked(has(VALGRIND.0) && arch.is_native(), "-debug", &VALGRIND.1);
    let for_whisper = if_asked(has(WHISPER.0), "-whisper", &WHISPER.1);
    let compiler = match arch.is_native() {
        true => "cc".to_owned(),
        false => arch.cross_linker(),
    };
    let has_npu = Device::discover().is_ok();
    // The backend's own `auto` is never the software model.
    let device = match Selector::from(args.device.as_ref()) {
        Selector::Auto if !has_npu => Selector::Model,
        selector => selector,
    };
    let options = json!({
        "checks": checks,
        "record": record,
        "arch": arch.debian(),
        "native": arch.is_native(),
        "triplet": arch.triplet(),
        "loader": packages.loader()?,
        "emulator": if arch.is_native() { &[] } else { arch.emulator() },
        "compiler": compiler,
        "suite": args.suite,
        "device": device.to_string(),
        "has_npu": has_npu,
        "library": library,
        "xtask": env::current_exe()?,
        "target": paths::target(),
        "packages": packages.root(),
        "debug_packages": for_valgrind.as_ref().map(Sysroot::root),
        "whisper_packages": for_whisper.as_ref().map(Sysroot::root),
    });
    let mut command = Command::new(python);
    command
        .current_dir(tests())
        .env("ROCKET_LLAMA", options.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // On a busy machine threads that spin would take many times as long.
        .env("OPENBLAS_NUM_THREADS", "1");
    Ok(command)
}

/// Sets up the private Python environment, unless it is there; returns its Python.
fn environment() -> Result<PathBuf> {
    let directory = paths::target().join("llama/venv");
    let (python, stamp) = (directory.join("bin/python"), directory.join("complete"));
    let requirements = tests().join("requirements.txt");
    let wanted = fs::read_to_string(&requirements).context("reading the requirements")?;
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(python);
    }
    println!("installing numpy, gguf and pytest privately");
    let mut create = Command::new("python3");
    create.args(["-m", "venv", "--clear"]).arg(&directory);
    process::run(create, INSTALL_LIMIT)?
        .checked("python3 -m venv")
        .context("is the package python3-venv installed?")?;
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
        "-r",
    ]);
    pip.arg(&requirements);
    process::run(pip, INSTALL_LIMIT)
        .and_then(|output| output.checked("pip install"))
        .map_err(|error| external(&error))?;
    fs::write(&stamp, wanted).context("writing the stamp")?;
    Ok(python)
}
