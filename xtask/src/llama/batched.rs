// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: the stock llama-batched-bench with 1 to 32 sequences at once.
//!
//! A step of token generation multiplies one row a sequence, so from
//! `GGML_ROCKET_MIN_M` sequences on it is the NPU's work. Counts are judged,
//! never times.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::attempts;
use super::model::Workshop;
use super::placement::products;
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use crate::process::{self, CommandOutput};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "batched-bench";
const LIMIT: Duration = Duration::from_secs(120);
const SEED: u32 = 1;
/// Numbers of sequences that are written at once.
const SEQUENCES: [u64; 4] = [1, 4, 8, 32];
/// From how many rows on products are offloaded here: in the middle of them.
const MIN_ROWS: u64 = 8;
/// Tokens of each prompt, all of whose batches are offloaded, and tokens that
/// are then written.
const PROMPT: u64 = MIN_ROWS;
const WRITTEN: u64 = 2;
/// Enough for all sequences, and for what the program warms up with.
const CONTEXT: &str = "2048";
/// Weights that a step multiplies by, and those of them that in a prompt only
/// see the last token of each sequence: the last layer's feed-forward network
/// and the output.
const PRODUCTS_OF_A_STEP: u64 = 29;
const PRODUCTS_OF_LAST_TOKENS: u64 = 4;

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let model = workshop.tiny_f16(SEED)?;
    let model = model.to_string_lossy();
    let mut alone = None;
    let mut work = 0;
    let mut notes = Vec::new();
    for sequences in SEQUENCES {
        let output = bench(stock, &model, sequences)?;
        let computed = products(&output)?;
        // With one sequence only prompts are offloaded.
        let alone = *alone.get_or_insert(computed);
        let expected = match sequences < MIN_ROWS {
            true => alone,
            false => alone + PRODUCTS_OF_LAST_TOKENS + WRITTEN * PRODUCTS_OF_A_STEP,
        };
        ensure!(
            alone > 0 && computed == expected,
            "{computed} products with {sequences} sequences, expected {expected}: {alone} with one \
             sequence, and {MIN_ROWS} rows suffice"
        );
        let more = StatsTable::find(&output.stderr)?.count("multiply-adds (millions)");
        ensure!(
            more > work,
            "{sequences} sequences took {more} million multiply-adds, fewer sequences {work}"
        );
        work = more;
        notes.push(format!("{sequences}: {computed} of {more} million"));
    }
    Ok(CheckVerdict::Pass(format!(
        "products and multiply-adds by sequences: {}",
        notes.join(", ")
    )))
}

fn bench(stock: &Stock, model: &str, sequences: u64) -> Result<CommandOutput> {
    #[rustfmt::skip]
    let arguments = [
        "-m", model, "-t", THREADS, "-tb", THREADS, "-c", CONTEXT,
        "-npp", &PROMPT.to_string(), "-ntg", &WRITTEN.to_string(),
        "-npl", &sequences.to_string(), "--output-format", "jsonl",
    ]
    .map(str::to_owned);
    let run = || {
        let mut command = stock.command("llama-batched-bench", Backend::With)?;
        command
            .args(&arguments)
            .env("GGML_ROCKET_MIN_M", MIN_ROWS.to_string());
        process::run(command, LIMIT)?.checked("llama-batched-bench")
    };
    let ended = |output: &CommandOutput| result_of(&output.text(), sequences).is_ok();
    attempts::until_whole("llama-batched-bench", run, |output| {
        ended(output) && StatsTable::find(&output.stderr).is_ok()
    })
}

/// The result that is written at the end, of so many sequences.
fn result_of(text: &str, sequences: u64) -> Result<serde_json::Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|result| result["pl"] == sequences)
        .with_context(|| format!("no result of {sequences} sequences: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_found_by_its_sequences() {
        let text = "noise\n{\"pp\": 8, \"tg\": 2, \"pl\": 32, \"speed\": 1.5}\n";
        assert!(result_of(text, 32).is_ok());
        assert!(result_of(text, 3).is_err());
        assert!(result_of(&text[..40], 32).is_err());
    }
}
