// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: with all, some or none of its layers on the NPU a model stays the
//! same, and what was asked for is offloaded.

use anyhow::{Context, Result, ensure};

use super::logits::{self, TextExtent};
use super::model::Workshop;
use super::placement::products;
use super::reference::ReferenceText;
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "layers";
/// Layers of the model: a number with thirds.
const LAYERS: u32 = 3;
const TOKENS: usize = 24;
/// More than 32 tokens.
const PROMPT: &str = "The quick brown fox jumps over the lazy dog, and then it thinks about the \
                      reason for doing so again and again.";

/// Which layers, by `GGML_ROCKET_TENSORS`, and the products of a prompt that
/// are then offloaded: 7 a layer, but 4 of the last, whose feed-forward
/// network sees the last token only, as the output does.
const SELECTIONS: [(&str, &str, u64); 4] = [
    ("all", "*", 7 + 7 + 4),
    ("two thirds", "blk.[0-1].*", 7 + 7),
    ("one third", "blk.0.*", 7),
    ("none", "!*", 0),
];

/// Mean KL divergence (nats a token) from the CPU, of the same F16 file.
const MOST: f64 = 1e-5;
/// The part of the text on which the divergence is measured.
const EXTENT: TextExtent = TextExtent {
    context: 64,
    chunks: 2,
};

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let model = workshop.tiny_layers_f16(LAYERS)?;
    let reference = ReferenceText::new(stock, &model, PROMPT, TOKENS)?;
    let (cpu, _) = logits::run(stock, Backend::Without, &model, EXTENT, &[])?;
    let mut notes = Vec::new();
    for (which, tensors, expected) in SELECTIONS {
        let set = [("GGML_ROCKET_TENSORS", tensors)];
        let (output, agreement) = reference
            .complete_alike(&[], &set)
            .with_context(|| format!("{which} of the layers"))?;
        let computed = products(&output)?;
        ensure!(
            computed == expected,
            "{which} of the layers: {computed} products offloaded, not {expected}"
        );
        let (ours, stderr) = logits::run(stock, Backend::With, &model, EXTENT, &set)?;
        let offloaded = StatsTable::find(&stderr)?.count("products computed in fp16");
        ensure!(
            (offloaded > 0) == (expected > 0),
            "{which} of the layers: {offloaded} products of llama-perplexity offloaded"
        );
        let divergence = cpu.divergence(&ours)?.mean;
        ensure!(
            divergence.abs() <= MOST,
            "{which} of the layers: mean KL divergence {divergence} from the CPU, more than {MOST}"
        );
        notes.push(format!(
            "{which}: {computed} products, {agreement}, KL divergence {divergence:.7}"
        ));
    }
    Ok(CheckVerdict::Pass(notes.join("; ")))
}
