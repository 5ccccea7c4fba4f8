// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: models of each kind and of each type of weights run with us, and
//! predict what they predict on the CPU.

use anyhow::{Result, ensure};

use super::logits::{self, TextExtent};
use super::model::{FORMATS, ModelRecipe, Workshop};
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "model-types";
/// One batch: what is predicted is compared for the second half of it.
const EXTENT: TextExtent = TextExtent {
    context: 64,
    chunks: 1,
};
/// Mean KL divergence (nats a token) from the CPU with the same file, which may
/// not be reached: about twice what is seen on x86-64, and less than what INT8
/// that is not rotated, or four bits, would lose (docs/llama.md).
///
/// In F16 and BF16 nothing but the order of sums differs, and with BF16 what the
/// CPU rounds activations to. With quantised types what is seen is the loss of the CPU,
/// which rounds activations to 8 bits, and that of rotated INT8.
fn bound(recipe: ModelRecipe, format: &str) -> f64 {
    let [fine, coarse] = match recipe {
        // One scale for 32 activations, one of which is large, is coarse.
        ModelRecipe::OUTLIERS => [0.03, 0.06],
        // More of the weights are quantised.
        ModelRecipe::TIED => [0.006, 0.01],
        _ => [0.003, 0.008],
    };
    match format {
        "F16" => 1e-5,
        "BF16" => 1.2e-4,
        "Q8_0" => fine,
        _ => coarse,
    }
}

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let mut notes = Vec::new();
    for recipe in ModelRecipe::ALL {
        let full = workshop.cook(recipe)?;
        let mut seen = Vec::new();
        let mut offloaded = None;
        for format in FORMATS {
            let name = format!("{} {format}", recipe.name);
            let model = workshop.quantised(stock, &full, format)?;
            let (cpu, _) = logits::run(stock, Backend::Without, &model, EXTENT, &[])?;
            let (ours, stderr) = logits::run(stock, Backend::With, &model, EXTENT, &[])?;
            let products = StatsTable::find(&stderr)?.products()?;
            // The same ones, whatever the type.
            let expected = *offloaded.get_or_insert(products);
            ensure!(
                products == expected,
                "{name}: {products} products offloaded, not {expected}"
            );
            let apart = cpu.divergence(&ours)?;
            let bound = bound(recipe, format);
            ensure!(
                apart.mean < bound,
                "{name}: mean KL divergence {:.6} from the CPU, and {bound} is the bound",
                apart.mean
            );
            seen.push(format!("{format} {:.6}", apart.mean));
        }
        notes.push(format!(
            "{} ({} products): {}",
            recipe.name,
            offloaded.unwrap_or_default(),
            seen.join(", ")
        ));
    }
    Ok(CheckVerdict::Pass(format!(
        "mean KL divergence from the CPU, same file, nats a token: {}",
        notes.join("; ")
    )))
}
