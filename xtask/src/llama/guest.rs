// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: stock llama.cpp on the real kernel driver, in a virtual machine,
//! writes what it writes outside on the model.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::THREADS;
use super::model::Workshop;
use super::reference::{Reference, generated};
use super::stats::Stats;
use super::stock::Stock;
use super::texts::PROMPTS;
use crate::arch::Arch;
use crate::process;
use crate::report::Verdict;

/// Name of the check.
pub(super) const NAME: &str = "real-driver";

/// Tokens to write.
const TOKENS: usize = 16;
/// For the run in the guest, kernel and programs built before.
const LIMIT: Duration = Duration::from_secs(900);
/// For asking the dynamic loader.
const LIST_LIMIT: Duration = Duration::from_secs(60);

const PROGRAM: &str = "llama-completion";
/// Otherwise each side measures from how many rows on the NPU pays.
const MIN_ROWS: (&str, &str) = ("GGML_ROCKET_MIN_M", "8");
/// Places in the guest. The libraries' is where Debian has them, since ggml
/// looks there for its CPU backends.
const MODEL: &str = "/model.gguf";
const LIBRARIES: &str = "/usr/lib/aarch64-linux-gnu";
const BACKEND: &str = "/usr/lib/libggml-rocket.so";
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";

/// Runs the check.
pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<Verdict> {
    if stock.arch() != Arch::Arm64 {
        return Ok(Verdict::Skip("needs `--arch arm64`".to_owned()));
    }
    let (seed, prompt) = PROMPTS[0];
    let model = workshop.tiny_f16(seed)?;
    let reference = Reference::new(stock, &model, prompt, TOKENS)?;
    let (outside, agreement) = reference.complete_alike(&[], &[MIN_ROWS])?;
    let inside =
        process::run(guest(stock, &model, prompt)?, LIMIT)?.checked("cargo xtask vm run")?;
    let stats = Stats::find(&inside.stderr)?;
    ensure!(
        generated(&inside) == generated(&outside),
        "on the real driver: {:?}; on the model: {:?}",
        String::from_utf8_lossy(generated(&inside)),
        String::from_utf8_lossy(generated(&outside))
    );
    let (here, there) = (
        Stats::find(&outside.stderr)?.offloaded("fp16")?,
        stats.offloaded("fp16")?,
    );
    ensure!(
        here == there,
        "{there} products on the real driver, {here} on the model"
    );
    Ok(Verdict::Pass(format!(
        "{TOKENS} tokens after a prompt, {there} products in FP16, on {}: the model's text; \
         beside the CPU's: {agreement}",
        stats.device()
    )))
}

/// The command line that runs the program in a guest.
fn guest(stock: &Stock, model: &Path, prompt: &str) -> Result<Command> {
    let program = stock.tool(PROGRAM)?;
    let mut files = vec![
        (program.clone(), format!("/bin/{PROGRAM}")),
        (model.to_owned(), MODEL.to_owned()),
        (stock.library().to_owned(), BACKEND.to_owned()),
        (stock.loader().to_owned(), LOADER.to_owned()),
    ];
    let plugins = stock.cpu_backends()?;
    let mut libraries = BTreeSet::new();
    for file in [&program, &stock.library().to_owned()]
        .into_iter()
        .chain(&plugins)
    {
        libraries.extend(needed(stock, file)?);
    }
    for library in libraries {
        let name = library
            .file_name()
            .unwrap_or_default()
            .display()
            .to_string();
        files.push((library, format!("{LIBRARIES}/{name}")));
    }
    for plugin in plugins {
        let name = plugin.file_name().unwrap_or_default().display().to_string();
        files.push((plugin, format!("{LIBRARIES}/ggml/backends0/{name}")));
    }
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["vm", "run", "--smp", THREADS]);
    for (host, guest) in files {
        command
            .arg("--file")
            .arg(format!("{}:{guest}", host.display()));
    }
    for set in [
        format!("GGML_BACKEND_PATH={BACKEND}"),
        "GGML_ROCKET_DEVICE=/dev/accel/accel0".to_owned(),
        "GGML_ROCKET_STATS=1".to_owned(),
        format!("{}={}", MIN_ROWS.0, MIN_ROWS.1),
    ] {
        command.args(["--env", &set]);
    }
    command.args(["--", &format!("/bin/{PROGRAM}"), "-m", MODEL]);
    command.args(Reference::options(prompt, TOKENS));
    Ok(command)
}

/// The libraries that `file` is loaded with, as the packages' dynamic loader
/// finds them.
fn needed(stock: &Stock, file: &Path) -> Result<Vec<PathBuf>> {
    let output = process::run(stock.list(file), LIST_LIMIT)?;
    let output = output.checked("the dynamic loader")?.text();
    let mut libraries = Vec::new();
    for line in output.lines() {
        let Some((name, path)) = line.split_once(" => ") else {
            continue;
        };
        match path.split(" (").next() {
            Some(path) if path.starts_with('/') => libraries.push(PathBuf::from(path)),
            _ => bail!(
                "{} needs {}, which the packages lack",
                file.display(),
                name.trim()
            ),
        }
    }
    Ok(libraries)
}
