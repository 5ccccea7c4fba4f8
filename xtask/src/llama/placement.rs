// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: the backend changes no weight's place, computes prompts and nothing
//! else, and keeps to what the user allows it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::attempts;
use super::model::Workshop;
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use crate::process::{self, CommandOutput};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "weight-placement";
const LIMIT: Duration = Duration::from_secs(120);
/// One type that the CPU rearranges on every machine, one that it does not on
/// some, and one that it never does; and the same with experts.
const MODELS: [(bool, &str); 5] = [
    (false, "Q4_0"),
    (false, "Q8_0"),
    (false, "F16"),
    (true, "Q4_0"),
    (true, "F16"),
];
const SEED: u32 = 1;
/// More than 32 tokens.
const PROMPT: &str = "The quick brown fox jumps over the lazy dog, and then it thinks about the \
                      reason for doing so again and again.";
/// Weight tensors of one layer that are multiplied by: 4 of attention and 3
/// behind it; with experts, one more to choose them.
const TENSORS_OF_A_LAYER: u64 = 7;

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let mut notes = Vec::new();
    for (experts, format) in MODELS {
        let full = match experts {
            false => workshop.tiny_f16(SEED)?,
            true => workshop.tiny_experts_f16()?,
        };
        let model = match format {
            "F16" => full,
            _ => workshop.quantised(stock, &full, format)?,
        };
        let model = model.to_string_lossy();
        let kind = if experts { " with experts" } else { "" };
        let format = format!("{format}{kind}");
        let run = |backend, tokens, set: &[_]| complete(stock, backend, &model, tokens, &[], set);
        let plain = |backend| complete(stock, backend, &model, "1", &["--no-repack"], &[]);

        let without = places(&run(Backend::Without, "1", &[])?.stderr);
        let one = run(Backend::With, "1", &[])?;
        let with = places(&one.stderr);
        ensure!(
            !with.is_empty() && with == without,
            "{format}: the weights lie in {with:?}, and in {without:?} without the backend"
        );
        let (with_plain, without_plain) = (plain(Backend::With)?, plain(Backend::Without)?);
        ensure!(
            places(&with_plain.stderr) == places(&without_plain.stderr),
            "{format}: with --no-repack the weights lie elsewhere than without the backend"
        );
        let prompt = products(&one)?;
        ensure!(
            products(&with_plain)? == prompt,
            "{format}: not as many products with --no-repack"
        );
        ensure!(prompt > 0, "{format}: no product was computed");
        let several = products(&run(Backend::With, "8", &[])?)?;
        ensure!(
            several == prompt,
            "{format}: {prompt} products for the prompt, but {several} with 8 tokens written"
        );

        let none = run(Backend::With, "1", &[("GGML_ROCKET_MEM", "0")])?;
        ensure!(
            products(&none)? == 0,
            "{format}: products were computed without memory for weights"
        );
        ensure!(
            places(&none.stderr) == without,
            "{format}: weights that do not fit lie elsewhere than without the backend"
        );
        let layer = [("GGML_ROCKET_TENSORS", "blk.[0-1].*,!blk.1.*")];
        let layer = products(&run(Backend::With, "1", &layer)?)?;
        let expected = TENSORS_OF_A_LAYER + u64::from(experts);
        ensure!(
            layer == expected,
            "{format}: {layer} products with the weights of one layer, not {expected}"
        );

        let places: Vec<String> = with
            .iter()
            .map(|(name, size)| format!("{size:.2} MiB in {name}"))
            .collect();
        notes.push(format!(
            "{format}: {}, {prompt} products",
            places.join(" and ")
        ));
    }
    Ok(CheckVerdict::Pass(format!(
        "each weight where it is without the backend, also with --no-repack, all products in the prompt, none beyond \
         GGML_ROCKET_MEM or GGML_ROCKET_TENSORS; {}",
        notes.join("; ")
    )))
}

/// Writes `tokens` tokens after the prompt.
fn complete(
    stock: &Stock,
    backend: Backend,
    model: &str,
    tokens: &str,
    options: &[&str],
    set: &[(&str, &str)],
) -> Result<CommandOutput> {
    let run = || {
        let mut command = stock.command("llama-completion", backend)?;
        command
            .args(["-m", model, "-p", PROMPT, "-n", tokens, "--temp", "0", "-v"])
            .args(["--ignore-eos", "-no-cnv", "-t", THREADS, "-tb", THREADS])
            .args(options)
            .envs(set.iter().copied());
        process::run(command, LIMIT)?.checked("llama-completion")
    };
    attempts::until_whole("llama-completion", run, |output| {
        let told = backend == Backend::Without || StatsTable::find(&output.stderr).is_ok();
        told && !places(&output.stderr).is_empty()
    })
}

/// Products that were computed; an error if one failed.
pub(super) fn products(output: &CommandOutput) -> Result<u64> {
    let stats = StatsTable::find(&output.stderr)?;
    ensure!(stats.count("products failed") == 0, "products failed");
    // Which of them the backend chooses is not what this is about.
    let precisions = ["fp16", "int8", "int8-hadamard"];
    let counts = precisions.map(|name| stats.count(&format!("products computed in {name}")));
    Ok(counts.iter().sum())
}

/// MiB of weights by buffer type, from the load log. A first pass only
/// estimates, with sizes of zero.
pub(super) fn places(text: &str) -> BTreeMap<String, f64> {
    let mut places = BTreeMap::new();
    for line in text.lines() {
        let Some((name, size)) = line.split_once(" model buffer size =") else {
            continue;
        };
        let name = name.split_whitespace().last().unwrap_or_default();
        let size = size.trim().trim_end_matches("MiB").trim().parse::<f64>();
        if let Ok(size) = size
            && size > 0.0
        {
            *places.entry(name.to_owned()).or_insert(0.0) += size;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_added_up_by_name() {
        let log = "load_tensors:   CPU_REPACK model buffer size =     0.00 MiB\n\
                   0.00.1 I load_tensors:   CPU_Mapped model buffer size =     0.25 MiB\n\
                   0.00.1 I load_tensors:   CPU_Mapped model buffer size =     0.50 MiB\n\
                   0.00.1 I load_tensors:   CPU_REPACK model buffer size =     1.69 MiB\n\
                   llama_kv_cache:        CPU KV buffer size =     4.00 MiB\n";
        let expected = [("CPU_Mapped", 0.75), ("CPU_REPACK", 1.69)];
        assert_eq!(
            places(log),
            expected.map(|(name, size)| (name.to_owned(), size)).into()
        );
    }
}
