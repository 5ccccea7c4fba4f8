// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's stock llama.cpp in a private directory, and how to run it there.
//!
//! The binaries need a newer C library than this machine may have, so their
//! own dynamic loader starts them, with their own libraries. One thing is
//! special: ggml looks for its backends in a directory that was fixed when
//! Debian built it (and that does not exist here), and then next to
//! `/proc/self/exe`, which is the file of the loader. So the loader gets a
//! directory of its own, with links to the CPU backends beside it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use npu_model::Selector;
use rocket_uapi::Device;

use super::stats::name_of;
use crate::arch::Arch;
use crate::debian::Sysroot;
use crate::paths;
use crate::process::{self, CommandOutput};
use crate::report::external;

/// The packages with the programs used here; apt adds what they need.
const PACKAGES: [&str; 5] = [
    "llama.cpp-examples",
    "llama.cpp-tools",
    "llama.cpp-tools-extra",
    "llama.cpp-tests",
    "libggml0",
];

/// The CPU's share of a computation depends on how many threads divide it, so
/// that both sides of each comparison use the same number.
pub(super) const THREADS: &str = "2";

/// Options that say which stock binaries are run, and on which device of ours.
#[derive(Debug, clap::Args)]
pub(crate) struct LlamaArgs {
    /// Debian's name of the architecture of the stock binaries [default: this
    /// machine's]
    #[arg(long, value_enum, default_value_t = Arch::native(), hide_default_value = true)]
    pub(super) arch: Arch,
    /// Debian suite to take them from
    #[arg(long, default_value = "sid")]
    pub(super) suite: String,
    /// Device that the backend uses: model, a path, or auto (the kernel's device if
    /// there is one, else the model)
    #[arg(long, default_value = "auto")]
    pub(super) device: String,
    /// Fetch the packages again, even if they are less than a day old
    #[arg(long)]
    pub(super) refresh: bool,
}

/// Debian's llama.cpp, unpacked, and the backend that it is to load.
#[derive(Debug)]
pub(super) struct Stock {
    suite: String,
    sysroot: Sysroot,
    loader: PathBuf,
    library: PathBuf,
    device: String,
    ggml_version: String,
}

/// Whether a run has our backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// As Debian ships it, without our backend.
    Without,
    /// With `GGML_BACKEND_PATH`.
    With,
}

impl Stock {
    /// Fetches and unpacks the packages, unless they are there.
    pub(super) fn prepare(args: &LlamaArgs, library: PathBuf) -> Result<Self> {
        let arch = args.arch;
        let directory = paths::target().join(format!("llama/{}-{arch}", args.suite));
        let sysroot = Sysroot::prepare(&directory, &PACKAGES, &args.suite, arch, args.refresh)?;
        let loader = place_loader(&directory, &sysroot)?;
        let ggml_version = version_of_ggml(&sysroot.libraries())?;
        Ok(Self {
            suite: args.suite.clone(),
            sysroot,
            loader,
            library,
            device: chosen_device(&args.device),
            ggml_version,
        })
    }

    /// The architecture of the binaries.
    pub(super) fn arch(&self) -> Arch {
        self.sysroot.arch()
    }

    /// The Debian suite that they are from.
    pub(super) fn suite(&self) -> &str {
        &self.suite
    }

    /// The private copy of their dynamic loader.
    pub(super) fn loader(&self) -> &Path {
        &self.loader
    }

    /// Path of its libggml.
    pub(super) fn ggml_library(&self) -> PathBuf {
        self.libraries().join("libggml.so.0")
    }

    fn libraries(&self) -> PathBuf {
        self.sysroot.libraries()
    }

    /// The library that [`Backend::With`] loads.
    pub(super) fn library(&self) -> &Path {
        &self.library
    }

    /// Version of the binaries' ggml.
    pub(super) fn ggml_version(&self) -> &str {
        &self.ggml_version
    }

    /// The unpacked packages that the binaries are from.
    pub(super) fn sysroot(&self) -> &Sysroot {
        &self.sysroot
    }

    /// The file of `tool`.
    pub(super) fn tool(&self, tool: &str) -> Result<PathBuf> {
        let triplet = self.arch().triplet();
        [
            "usr/bin".to_owned(),
            format!("usr/libexec/{triplet}/llama.cpp-tests"),
        ]
        .iter()
        .map(|directory| self.sysroot.root().join(directory).join(tool))
        .find(|path| path.exists())
        .with_context(|| format!("the packages contain no {tool}"))
        .map_err(|error| external(&error))
    }

    /// ggml's backends for the CPU, one for each generation.
    pub(super) fn cpu_backends(&self) -> Result<Vec<PathBuf>> {
        cpu_backends(&self.libraries())
    }

    /// llama.cpp's own libraries.
    pub(super) fn llama_libraries(&self) -> PathBuf {
        self.libraries().join("llama")
    }

    /// A command line that starts `tool`; the caller adds arguments.
    pub(super) fn command(&self, tool: &str, backend: Backend) -> Result<Command> {
        let llama = self.llama_libraries();
        let mut command = self.program(&self.tool(tool)?, &[&llama], backend);
        command.current_dir(self.sysroot.root());
        Ok(command)
    }

    /// A command line that starts `program` of any origin, with the libraries
    /// of `directories` and then of the packages; the caller adds arguments.
    pub(super) fn program(
        &self,
        program: &Path,
        directories: &[&Path],
        backend: Backend,
    ) -> Command {
        let libraries = self.libraries();
        let path: Vec<_> = directories
            .iter()
            .copied()
            .chain([&*libraries])
            .map(|directory| directory.to_string_lossy())
            .collect();
        let mut command = self.arch().command(&self.loader);
        command
            .arg("--argv0")
            .arg(program.file_name().unwrap_or_default())
            .args(["--library-path", &path.join(":")])
            .arg(program);
        self.equip(&mut command, backend);
        command
    }

    /// Sets the environment of a command with our backend, or without.
    pub(super) fn equip(&self, command: &mut Command, backend: Backend) {
        // Nothing of the caller's environment may reach one side only.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GGML_") || text.starts_with("LLAMA_") {
                command.env_remove(name);
            }
        }
        if backend == Backend::With {
            command
                .env("GGML_BACKEND_PATH", &self.library)
                .env("GGML_ROCKET_DEVICE", &self.device)
                // Tiny models would not pay.
                .env("GGML_ROCKET_MIN_M", "32")
                .env("GGML_ROCKET_STATS", "1");
        }
    }

    /// What the backend is told to compute on.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// The name of the backend's device in ggml's lists.
    pub(super) fn device_name(&self) -> &'static str {
        let selector = Selector::from(self.device.as_ref());
        name_of(matches!(selector, Selector::Model | Selector::ModelWith(_)))
    }

    /// Runs `tool` to its end.
    pub(super) fn run(
        &self,
        tool: &str,
        backend: Backend,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<CommandOutput> {
        let mut command = self.command(tool, backend)?;
        command.args(arguments);
        process::run(command, limit).with_context(|| tool.to_owned())
    }
}

/// What the backend is told of the device `wanted`: its own `auto` is never the
/// software model.
fn chosen_device(wanted: &str) -> String {
    let selector = match Selector::from(wanted.as_ref()) {
        Selector::Auto if Device::discover().is_err() => Selector::Model,
        selector => selector,
    };
    selector.to_string()
}

/// Puts the loader into a directory with ggml's CPU backends.
fn place_loader(directory: &Path, sysroot: &Sysroot) -> Result<PathBuf> {
    let original = sysroot.loader()?;
    let private = directory.join("loader");
    if private.exists() {
        fs::remove_dir_all(&private).context("removing the old loader")?;
    }
    fs::create_dir_all(&private).context("making the loader's directory")?;
    let loader = private.join("ld.so");
    fs::copy(&original, &loader).context("copying the loader")?;
    for backend in cpu_backends(&sysroot.libraries())? {
        symlink(
            &backend,
            private.join(backend.file_name().unwrap_or_default()),
        )?;
    }
    Ok(loader)
}

/// ggml's backends for the CPU, one for each generation.
fn cpu_backends(libraries: &Path) -> Result<Vec<PathBuf>> {
    let mut backends = Vec::new();
    for entry in fs::read_dir(libraries.join("ggml/backends0"))
        .context("the packages contain no directory of ggml backends")
        .map_err(|error| external(&error))?
    {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("libggml-cpu") {
            backends.push(entry.path());
        }
    }
    if backends.is_empty() {
        bail!(external(&anyhow::anyhow!(
            "the packages contain no CPU backend of ggml"
        )));
    }
    Ok(backends)
}

/// Reads the version off the file name of libggml-base.
fn version_of_ggml(libraries: &Path) -> Result<String> {
    let mut longest = String::new();
    for entry in fs::read_dir(libraries).context("reading the libraries' directory")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(version) = name.strip_prefix("libggml-base.so.")
            && version.len() > longest.len()
        {
            longest = version.to_owned();
        }
    }
    if longest.is_empty() {
        bail!(external(&anyhow::anyhow!(
            "the packages contain no libggml-base.so with a version"
        )));
    }
    Ok(longest)
}
