// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: the same model and prompt give the same text with our backend.

use std::fmt;

use anyhow::{Context, Result};

use super::model::Workshop;
use super::reference::{Agreement, ReferenceText, generated};
use super::stats::StatsTable;
use super::stock::{Stock, THREADS};
use super::trace;
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "f16-same-text";
/// Tokens to write.
const TOKENS: usize = 64;

/// Prompts long enough to be offloaded, each with a model of its own seed. Of
/// sixty seeds these were chosen because in their texts the best token leads
/// the second by more than 0.017 at each step, on an x86-64 CPU: some ten
/// times the rounding noise of these models' logits. A difference is then more
/// than noise on other CPUs too, whose kernels sum in another order.
pub(super) const PROMPTS: [(u32, &str); 3] = [
    (
        49,
        "The quick brown fox jumps over the lazy dog, and then it thinks about the reason for \
         doing so again and again.",
    ),
    (
        54,
        "In the beginning there was a matrix, and it was multiplied by another one; the product \
         was good, but it took rather long.",
    ),
    (
        15,
        "0 1 1 2 3 5 8 13 21 34 55 89 144: each number is the sum of the two before it. Question: \
         what comes next? Answer:",
    ),
];

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let mut notes = Vec::new();
    for (seed, prompt) in PROMPTS {
        let texts = compare(stock, workshop, seed, prompt)
            .with_context(|| format!("model with seed {seed}"))?;
        notes.push(format!("seed {seed}: {texts}"));
    }
    Ok(CheckVerdict::Pass(format!(
        "{TOKENS} tokens each, {THREADS} threads on both sides; ties are judged by the CPU's \
         logits, from llama-server; {}",
        notes.join("; ")
    )))
}

/// What one model wrote after one prompt, without the backend and with it.
#[derive(Debug)]
pub(super) struct TextPair {
    /// Without our backend.
    pub(super) without: Vec<u8>,
    /// Text with the backend.
    pub(super) with: Vec<u8>,
    agreement: Agreement,
    /// The smallest lead of a best token in the CPU's text, as logits.
    smallest_gap: f64,
    /// Products that ran in FP16.
    products: u64,
    /// The backend's statistics.
    pub(super) statistics: String,
}

impl fmt::Display for TextPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} products in FP16, smallest top-2 gap {:.6})",
            self.agreement, self.products, self.smallest_gap
        )
    }
}

/// Has a model go on from `prompt` on both sides.
///
/// # Errors
/// If the texts differ by more than ties, or nothing was offloaded.
pub(super) fn compare(
    stock: &Stock,
    workshop: &Workshop,
    seed: u32,
    prompt: &str,
) -> Result<TextPair> {
    let reference = ReferenceText::new(stock, &workshop.tiny_f16(seed)?, prompt, TOKENS)?;
    reference.confirm()?;
    let path = trace::path();
    let traced = [(trace::VARIABLE, &*path.to_string_lossy())];
    let (with, agreement) = reference.complete_alike(&[], &traced)?;
    let stats = StatsTable::find(&with.stderr)?;
    stats.has_times()?;
    trace::check(&path, &stats)?;
    Ok(TextPair {
        without: reference.text(),
        with: generated(&with).to_owned(),
        agreement,
        smallest_gap: reference.smallest_gap(),
        products: stats.offloaded("fp16")?,
        statistics: stats.to_string(),
    })
}
