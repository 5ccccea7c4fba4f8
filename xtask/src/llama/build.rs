// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the library as it is shipped.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::arch::Arch;
use crate::paths;

/// The name under which the library is installed.
const INSTALLED_NAME: &str = "libggml-rocket.so";

/// Builds the library in release mode for `arch`; returns its place.
pub(super) fn library(arch: Arch) -> Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(paths::root())
        .args(["build", "--release", "--package", "ggml-shim"]);
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
        bail!("building libggml_rocket.so failed: {status}");
    }
    let built = directory.join("release/libggml_rocket.so");
    let installed = built.with_file_name(INSTALLED_NAME);
    fs::copy(&built, &installed)
        .with_context(|| format!("copying {} to {INSTALLED_NAME}", built.display()))?;
    Ok(installed)
}
