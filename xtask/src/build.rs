// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds programs and libraries the way the packages have them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::paths;
use crate::process::run_checked;

/// The name under which the ggml backend is installed.
const INSTALLED_BACKEND: &str = "libggml-rocket.so";

/// The Cargo profiles that xtask commands build with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CargoProfile {
    /// For trials and tests: quick to build.
    Release,
    /// For the packages, and for measurements.
    Dist,
    /// For programs in a virtual machine.
    Vm,
}

impl CargoProfile {
    /// Its name, also that of its directory below the target directory.
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
            Self::Vm => "vm",
        }
    }
}

/// Rust's target for programs in the virtual machine, which are static.
pub(crate) const GUEST_TARGET: &str = "aarch64-unknown-linux-musl";

/// Builds the ggml backend for `arch` in `profile`; returns its path.
pub(crate) fn backend(arch: Arch, profile: CargoProfile) -> Result<PathBuf> {
    let built = package("ggml-shim", profile, arch)?.join("libggml_rocket.so");
    let installed = built.with_file_name(INSTALLED_BACKEND);
    fs::copy(&built, &installed)
        .with_context(|| format!("copying {} to {INSTALLED_BACKEND}", built.display()))?;
    Ok(installed)
}

/// Builds the preload library for `arch`; returns its path.
pub(crate) fn preload(arch: Arch) -> Result<PathBuf> {
    Ok(package("rocket-preload", CargoProfile::Release, arch)?.join("librocket_preload.so"))
}

/// Builds `npu-probe` for this machine; returns its path.
pub(crate) fn probe() -> Result<PathBuf> {
    Ok(package("npu-probe", CargoProfile::Release, Arch::native())?.join("npu-probe"))
}

/// Builds the shipped `kinds` of targets of `members` for `target`; returns the output directory.
/// Machines with the same tools build the same bytes.
pub(crate) fn shipped(members: &[&str], kinds: &[&str], target: &str) -> Result<PathBuf> {
    let selection = &selection(members, kinds);
    let mut flags = format!(
        "--remap-path-prefix={}=/rocket-npu",
        paths::root().display()
    );
    if let Ok(cargo_home) = paths::home("CARGO_HOME", ".cargo") {
        flags += &format!(" --remap-path-prefix={}=/cargo", cargo_home.display());
    }
    let mut command = command(selection, CargoProfile::Dist, Some(target));
    run(command.env("RUSTFLAGS", flags), selection)?;
    Ok(paths::target().join(target).join(CargoProfile::Dist.name()))
}

/// Builds the same for this machine as [`package`] does, whose builds it shares; returns the output
/// directory.
pub(crate) fn unshipped(members: &[&str], kinds: &[&str]) -> Result<PathBuf> {
    cargo(&selection(members, kinds), CargoProfile::Release, None)
}

/// Cargo's options that select the `kinds` of targets of `members`.
fn selection<'a>(members: &[&'a str], kinds: &[&'a str]) -> Vec<&'a str> {
    let members = members.iter().flat_map(|&member| ["--package", member]);
    members.chain(kinds.iter().copied()).collect()
}

/// Builds the QEMU plugin for this machine; returns its path.
pub(crate) fn vm_plugin() -> Result<PathBuf> {
    let directory = cargo(&["--package", "npu-vm-plugin"], CargoProfile::Vm, None)?;
    Ok(directory.join("libnpu_vm_plugin.so"))
}

/// Builds the program `name` of this workspace for a virtual machine, static; returns its path.
pub(crate) fn guest(name: &str) -> Result<PathBuf> {
    let directory = cargo(&["--bin", name], CargoProfile::Vm, Some(GUEST_TARGET))
        .context("if the target is missing, run `rustup target add aarch64-unknown-linux-musl`")?;
    Ok(directory.join(name))
}

/// Builds the package `name` in `profile` for `arch`; returns the output directory.
fn package(name: &str, profile: CargoProfile, arch: Arch) -> Result<PathBuf> {
    let target = (!arch.is_native()).then(|| arch.rust_target());
    cargo(&["--package", name], profile, target)
}

/// Builds `selection` in `profile`, for `target` or this machine; returns the output directory.
fn cargo(selection: &[&str], profile: CargoProfile, target: Option<&str>) -> Result<PathBuf> {
    run(&mut command(selection, profile, target), selection)?;
    let directory = paths::target().join(target.unwrap_or_default());
    Ok(directory.join(profile.name()))
}

/// The command line for [`cargo`].
fn command(selection: &[&str], profile: CargoProfile, target: Option<&str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(paths::root())
        .args(["build", "--profile", profile.name()])
        .args(selection);
    let Some(target) = target else {
        return command;
    };
    command.args(["--target", target]);
    let compiler = Arch::Arm64.cross_linker();
    for variable in [
        format!(
            "CARGO_TARGET_{}_LINKER",
            target.to_uppercase().replace('-', "_")
        ),
        // Otherwise C dependencies look for a compiler named after musl.
        format!("CC_{}", target.replace('-', "_")),
    ] {
        if target.starts_with("aarch64") && std::env::var_os(&variable).is_none() {
            command.env(variable, &compiler);
        }
    }
    command
}

fn run(command: &mut Command, selection: &[&str]) -> Result<()> {
    println!(
        "building {}, for minutes the first time",
        selection.join(" ")
    );
    run_checked(command).with_context(|| format!("building {}", selection.join(" ")))
}
