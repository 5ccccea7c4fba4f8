// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bless`: takes what the golden tests print now as right. The
//! diff of the golden files is then read like any other change.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths;

/// The packages that keep golden files, and the tests that hold them.
const TESTS: [(&str, &str); 4] = [
    ("rknpu-regcmd", "programs"),
    ("npu-probe", "doctor"),
    ("npu-probe", "model"),
    ("fuzz-targets", "baseline"),
];

/// Runs the golden tests with `BLESS=1`, which makes them write instead of
/// compare.
pub(crate) fn run() -> Result<()> {
    for (package, test) in TESTS {
        let status = Command::new("cargo")
            .args(["test", "--package", package, "--test", test])
            .env("BLESS", "1")
            .current_dir(paths::root())
            .status()
            .context("running cargo test")?;
        if !status.success() {
            bail!("the golden tests failed even though they may write: {status}");
        }
    }
    println!("blessed; read `git diff` before you commit");
    Ok(())
}
