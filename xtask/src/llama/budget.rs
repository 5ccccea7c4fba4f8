// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: with less memory than the packed model takes, part of it is
//! offloaded, the log says so, and the text is the same.

use anyhow::{Context, Result, ensure};

use super::model::Workshop;
use super::placement::products;
use super::reference::{ReferenceText, generated};
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use super::{attempts, texts};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "small-budget";
const TOKENS: usize = 16;
/// The weights of the model take some 6 MiB in FP16.
const BUDGET: &str = "4M";
const BUDGET_KIB: u64 = 4096;
/// The beginning of the log's line about the budget.
const TOLD: &str = "weights for the NPU: ";

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let (seed, prompt) = texts::PROMPTS[0];
    let reference = ReferenceText::new(stock, &workshop.tiny_f16(seed)?, prompt, TOKENS)?;
    let (all, _) = reference.complete_alike(&[], &[])?;
    let (all, most) = (
        StatsTable::find(&all.stderr)?.count(PACKED),
        products(&all)?,
    );
    let set = [("GGML_ROCKET_MEM", BUDGET)];
    // Of the log, which a thread writes, the end may be missing.
    let output = attempts::until_whole(
        "llama-completion",
        || reference.complete(Backend::With, &["-v"], &set),
        |output| output.stderr.contains(TOLD),
    )?;
    let agreement = reference.judge(generated(&output))?;
    let stats = StatsTable::find(&output.stderr)?;
    let (packed, size) = (
        stats.count(PACKED),
        stats.count("KiB of weights on the NPU"),
    );
    let left = stats.count("weight tensors left to the CPU");
    ensure!(
        packed > 0 && left > 0 && packed < all,
        "{packed} tensors on the NPU and {left} left to the CPU, of {all}"
    );
    ensure!(
        size <= BUDGET_KIB,
        "{size} KiB of weights on the NPU, of {BUDGET_KIB} allowed"
    );
    let computed = stats.offloaded("fp16")?;
    ensure!(
        computed < most,
        "{computed} products offloaded, and {most} without a limit"
    );
    let line = output
        .stderr
        .lines()
        .rfind(|line| line.contains(TOLD))
        .context("no line says what became of the weights")?;
    let (_, line) = line.split_once("ROCKET: ").context("no name")?;
    let told = format!("{TOLD}{packed} tensors");
    ensure!(
        line.starts_with(&told) && line.contains("left to the CPU: "),
        "the line should say {told:?} and what was left: {line:?}"
    );
    Ok(CheckVerdict::Pass(format!(
        "GGML_ROCKET_MEM={BUDGET}: {computed} of {most} products, {agreement}; {line}"
    )))
}

/// The row of the table with the tensors that are packed.
const PACKED: &str = "weight tensors on the NPU";
