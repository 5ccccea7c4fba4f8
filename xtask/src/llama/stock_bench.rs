// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: the stock llama-bench has its prompts computed by the backend and
//! its tokens by the CPU, with each weight where it is without us.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::attempts;
use super::model::Workshop;
use super::placement::{places, products};
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use crate::process::{self, CommandOutput};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "llama-bench";
const LIMIT: Duration = Duration::from_secs(120);
const SEED: u32 = 1;
/// One type that the CPU rearranges on every machine, and one that it never
/// does.
const FORMATS: [&str; 2] = ["Q4_0", "F16"];
/// A prompt and nothing else, and tokens and nothing else.
const PROMPT: [&str; 4] = ["-p", "64", "-n", "0"];
const TOKENS: [&str; 4] = ["-p", "0", "-n", "4"];
/// Products of a prompt: those of 4 layers, but for the last layer's
/// feed-forward network and the output, which only see the last token.
const PRODUCTS_OF_A_PROMPT: u64 = 25;

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let full = workshop.tiny_f16(SEED)?;
    let mut notes = Vec::new();
    for format in FORMATS {
        let model = workshop.quantised(stock, &full, format)?;
        let model = model.to_string_lossy();
        let without = places(&bench(stock, Backend::Without, &model, TOKENS)?.stderr);

        let prompt = bench(stock, Backend::With, &model, PROMPT)?;
        let computed = products(&prompt)?;
        // One run, and those that warm up.
        ensure!(
            computed > 0 && computed % PRODUCTS_OF_A_PROMPT == 0,
            "{format}: {computed} products, not {PRODUCTS_OF_A_PROMPT} a prompt"
        );
        let tokens = bench(stock, Backend::With, &model, TOKENS)?;
        let (stray, jobs) = (
            products(&tokens)?,
            StatsTable::find(&tokens.stderr)?.count("jobs"),
        );
        ensure!(
            stray == 0 && jobs == 0,
            "{format}: {stray} products and {jobs} jobs in token generation"
        );
        for output in [&prompt, &tokens] {
            let with = places(&output.stderr);
            ensure!(
                with == without,
                "{format}: the weights lie in {with:?}, and in {without:?} without the backend"
            );
        }
        let places: Vec<&str> = without.keys().map(String::as_str).collect();
        notes.push(format!(
            "{format}: {computed} products, weights in {}",
            places.join(" and ")
        ));
    }
    Ok(CheckVerdict::Pass(format!(
        "no job in token generation, each weight where it is without the backend; in prompts, {}",
        notes.join("; ")
    )))
}

fn bench(stock: &Stock, backend: Backend, model: &str, work: [&str; 4]) -> Result<CommandOutput> {
    let run = || {
        let mut command = stock.command("llama-bench", backend)?;
        command
            .args(["-m", model, "-t", THREADS, "-r", "1", "-v"])
            .args(work);
        process::run(command, LIMIT)?.checked("llama-bench")
    };
    attempts::until_whole("llama-bench", run, |output| {
        let told = backend == Backend::Without || StatsTable::find(&output.stderr).is_ok();
        told && !places(&output.stderr).is_empty()
    })
}
