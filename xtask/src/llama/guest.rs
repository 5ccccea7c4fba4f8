// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: stock llama.cpp on the real kernel driver, in a virtual machine,
//! writes what it writes outside on the model.

use std::path::Path;

use anyhow::{Result, ensure};

use super::model::Workshop;
use super::reference::{ReferenceText, generated};
use super::stats::StatsTable;
use super::stock::{Stock, THREADS};
use super::texts::PROMPTS;
use crate::arch::Arch;
use crate::process::CommandOutput;
use crate::report::CheckVerdict;
use crate::vm::{Guest, GuestRunner, KernelArgs};

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "real-driver";

/// Tokens to write.
const TOKENS: usize = 16;
/// Time that the run in the guest may take, seconds.
const LIMIT: u64 = 900;

const PROGRAM: &str = "llama-completion";
/// Otherwise each side measures from how many rows on the NPU pays.
const MIN_ROWS: (&str, &str) = ("GGML_ROCKET_MIN_M", "8");
/// Places in the guest.
const MODEL: &str = "/model.gguf";
const BACKEND: &str = "/usr/lib/libggml-rocket.so";

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    if stock.arch() != Arch::Arm64 {
        return Ok(CheckVerdict::Skip("needs `--arch arm64`".to_owned()));
    }
    let (seed, prompt) = PROMPTS[0];
    let model = workshop.tiny_f16(seed)?;
    let reference = ReferenceText::new(stock, &model, prompt, TOKENS)?;
    let (outside, agreement) = reference.complete_alike(&[], &[MIN_ROWS])?;
    let inside = run_in_guest(stock, &model, prompt)?;
    let stats = StatsTable::find(&inside.stderr)?;
    ensure!(
        generated(&inside) == generated(&outside),
        "on the real driver: {:?}; on the model: {:?}",
        String::from_utf8_lossy(generated(&inside)),
        String::from_utf8_lossy(generated(&outside))
    );
    let (here, there) = (
        StatsTable::find(&outside.stderr)?.offloaded("fp16")?,
        stats.offloaded("fp16")?,
    );
    ensure!(
        here == there,
        "{there} products on the real driver, {here} on the model"
    );
    Ok(CheckVerdict::Pass(format!(
        "{TOKENS} tokens after a prompt, {there} products in FP16, on {}: the model's text; \
         beside the CPU's: {agreement}",
        stats.device()
    )))
}

/// Runs the program in a guest.
fn run_in_guest(stock: &Stock, model: &Path, prompt: &str) -> Result<CommandOutput> {
    let runner = GuestRunner::prepare(&Guest::new(KernelArgs::default(), THREADS.parse()?))?;
    let (mut files, place) = runner.files(&format!("/bin/{PROGRAM}"))?;
    let program = stock.tool(PROGRAM)?;
    files.add(&program, &place)?;
    files.add(model, MODEL)?;
    files.add(stock.library(), BACKEND)?;
    let mut loaded = stock.cpu_backends()?;
    // Where Debian has them, since ggml looks there for its CPU backends.
    let plugins = format!("/{}/ggml/backends0", stock.sysroot().place_of_libraries());
    for plugin in &loaded {
        files.add_to(&plugins, plugin)?;
    }
    loaded.extend([program, stock.library().to_owned()]);
    files.add_libraries(stock.sysroot(), &[stock.llama_libraries()], &loaded)?;
    files.environment(&[
        format!("GGML_BACKEND_PATH={BACKEND}"),
        "GGML_ROCKET_DEVICE=/dev/accel/accel0".to_owned(),
        "GGML_ROCKET_STATS=1".to_owned(),
        format!("{}={}", MIN_ROWS.0, MIN_ROWS.1),
    ]);
    let mut command = [&place, "-m", MODEL].map(str::to_owned).to_vec();
    command.extend(ReferenceText::options(prompt, TOKENS));
    files.command(&command);
    let (output, _) = runner.finish(files, LIMIT)?.of_program()?;
    output.checked(PROGRAM)
}
