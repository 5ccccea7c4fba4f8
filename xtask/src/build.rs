// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds what is shipped, as it is shipped.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::arch::Arch;
use crate::paths;

/// The name under which the ggml backend is installed.
const INSTALLED_BACKEND: &str = "libggml-rocket.so";

/// Builds the ggml backend for `arch`; returns its place.
pub(crate) fn backend(arch: Arch) -> Result<PathBuf> {
    let built = release("ggml-shim", arch)?.join("libggml_rocket.so");
    let installed = built.with_file_name(INSTALLED_BACKEND);
    fs::copy(&built, &installed)
        .with_context(|| format!("copying {} to {INSTALLED_BACKEND}", built.display()))?;
    Ok(installed)
}

/// Builds the preload library for `arch`; returns its place.
pub(crate) fn preload(arch: Arch) -> Result<PathBuf> {
    Ok(release("rocket-preload", arch)?.join("librocket_preload.so"))
}

/// Builds `npu-probe` for this machine; returns its place.
pub(crate) fn probe() -> Result<PathBuf> {
    Ok(release("npu-probe", Arch::native())?.join("npu-probe"))
}

/// Builds the program that runs one of the CPU's kernels for `arch`; returns its
/// place.
pub(crate) fn kernel_runs(arch: Arch) -> Result<PathBuf> {
    Ok(release("npu-bench", arch)?.join("kernel-runs"))
}

/// Builds `package` in release mode for `arch`; returns the directory of what
/// was built.
fn release(package: &str, arch: Arch) -> Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(paths::root())
        .args(["build", "--release", "--package", package]);
    let mut directory = paths::target();
    if !arch.is_native() {
        let target = arch.rust_target();
        let variable = format!(
            "CARGO_TARGET_{}_LINKER",
            target.to_uppercase().replace('-', "_")
        );
        command.args(["--target", target]);
        if std::env::var_os(&variable).is_none() {
            command.env(variable, arch.cross_linker());
        }
        directory.push(target);
    }
    let status = command.status().context("running cargo")?;
    if !status.success() {
        bail!("building {package} failed: {status}");
    }
    Ok(directory.join("release"))
}
