// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nightly toolchain of Miri, sanitizers and fuzzers, which exist only
//! there. A moving one would fail for reasons that are not ours.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The pinned nightly toolchain.
pub(crate) const TOOLCHAIN: &str = "nightly-2026-10-30";

/// Installs it, if it is not there, with `components`.
pub(crate) fn install(components: &[&str]) -> Result<()> {
    let mut command = Command::new("rustup");
    command.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]);
    for component in components {
        command.args(["--component", component]);
    }
    let status = command.status().context("running rustup")?;
    ensure!(
        status.success(),
        "rustup cannot install {TOOLCHAIN}: {status}"
    );
    Ok(())
}

/// Its cargo. What cargo tells its children about itself is taken away, so
/// that rustup does not go on with the toolchain of the work tree.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command
        .arg(format!("+{TOOLCHAIN}"))
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTC")
        .env_remove("RUSTDOC");
    command
}
