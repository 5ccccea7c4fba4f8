// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiny models, made here: a private Python environment and one script.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::stock::{Backend, Stock};
use crate::paths;
use crate::process;
use crate::report::external;

/// What the script imports. Ranges, because no single version runs on each
/// Python that a supported Debian has; the generator and the file format are
/// stable within them.
const REQUIREMENTS: [&str; 2] = ["numpy>=1.26,<3", "gguf>=0.17,<1"];
const INSTALL_LIMIT: Duration = Duration::from_secs(300);
const SCRIPT_LIMIT: Duration = Duration::from_secs(60);

/// Where models are made and kept.
#[derive(Debug)]
pub(super) struct Workshop {
    directory: PathBuf,
    python: PathBuf,
}

impl Workshop {
    /// Sets up the Python environment, unless it is there.
    pub(super) fn prepare() -> Result<Self> {
        let directory = paths::target().join("llama");
        let environment = directory.join("venv");
        let python = environment.join("bin/python");
        let stamp = environment.join("complete");
        if !stamp.exists() {
            println!("installing {} privately", REQUIREMENTS.join(", "));
            let mut create = Command::new("python3");
            create.args(["-m", "venv", "--clear"]).arg(&environment);
            process::run(create, INSTALL_LIMIT)?
                .checked("python3 -m venv")
                .context("is the package python3-venv installed?")?;
            let mut install = Command::new(&python);
            install
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args(REQUIREMENTS);
            process::run(install, INSTALL_LIMIT)
                .and_then(|output| output.checked("pip install"))
                .map_err(|error| external(&error))
                .context("fetching numpy and gguf")?;
            fs::write(&stamp, "").context("writing the stamp")?;
        }
        Ok(Self { directory, python })
    }

    /// A path for a file of the checks.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A tiny F16 model with weights from `seed`.
    pub(super) fn tiny_f16(&self, seed: u32) -> Result<PathBuf> {
        let model = self.path(&format!("tiny-{seed}-f16.gguf"));
        let mut command = Command::new(&self.python);
        command
            .arg(paths::root().join("xtask/scripts/make_tiny_gguf.py"))
            .arg(&model)
            .args(["--seed", &seed.to_string()]);
        process::run(command, SCRIPT_LIMIT)?.checked("make_tiny_gguf.py")?;
        Ok(model)
    }

    /// The same model, quantised to Q8_0 by the stock llama-quantize.
    pub(super) fn tiny_q8_0(&self, stock: &Stock, seed: u32) -> Result<PathBuf> {
        let full = self.tiny_f16(seed)?;
        let model = self.path(&format!("tiny-{seed}-q8_0.gguf"));
        let arguments = [&*full.to_string_lossy(), &*model.to_string_lossy(), "Q8_0"];
        stock
            .run("llama-quantize", Backend::Without, &arguments, SCRIPT_LIMIT)?
            .checked("llama-quantize")?;
        Ok(model)
    }
}
