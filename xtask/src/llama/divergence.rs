// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: what `auto` chooses keeps to its promise. Against the model in F16 it
//! loses at most twice what the file has lost already when the CPU computes it,
//! with outliers in the activations and without.
//!
//! Q8_0 is the hardest case, since such a file loses least. What INT8 would
//! lose is shown beside it: if it kept to the promise too, it would be the
//! better choice. `cargo xtask llama quality` has all types.

use anyhow::{Result, ensure};

use super::logits::{self, TextExtent};
use super::model::{ModelRecipe, Workshop};
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "q8_0-divergence";
const EXTENT: TextExtent = TextExtent {
    context: 64,
    chunks: 1,
};
/// The loss that passes, as a multiple of the file's own.
const MOST: f64 = 2.0;
/// Models and types of weights: the finest quantised type, where INT8 would be
/// at the bar without a margin; and the finest of those that `auto` computes in
/// INT8, where outliers hurt most.
const CASES: [(ModelRecipe, &str); 4] = [
    (ModelRecipe::PLAIN, "Q8_0"),
    (ModelRecipe::DEEP, "Q8_0"),
    (ModelRecipe::OUTLIERS, "Q8_0"),
    (ModelRecipe::OUTLIERS, "Q6_K"),
];
/// What `auto` could have chosen instead, and its name in the statistics.
const OTHER: (&str, &str) = ("w8a8-hadamard", "int8-hadamard");
/// How many times the file's own loss that may lose: about twice what is seen.
/// Were it not computed right, it would be many times as much.
const MOST_OF_OTHER: f64 = 4.0;
/// A rounding of all weights must show: below this the measure measures
/// nothing.
const NOTHING: f64 = 1e-6;

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let mut notes = Vec::new();
    for (recipe, format) in CASES {
        let name = format!("{} {format}", recipe.name);
        let full = workshop.cook(recipe)?;
        let model = workshop.quantised(stock, &full, format)?;
        let (exact, _) = logits::run(stock, Backend::Without, &full, EXTENT, &[])?;
        let loss = |backend, precision: &str| -> Result<(f64, String)> {
            let set = [("GGML_ROCKET_PRECISION", precision)];
            let (logits, stderr) = logits::run(stock, backend, &model, EXTENT, &set)?;
            Ok((exact.divergence(&logits)?.mean, stderr))
        };
        let (own, _) = loss(Backend::Without, "")?;
        ensure!(
            own > NOTHING,
            "{name}: a loss of {own} is none: the comparison is worthless"
        );
        let (auto, stderr) = loss(Backend::With, "auto")?;
        let stats = StatsTable::find(&stderr)?;
        let (products, fp16) = (stats.products()?, stats.count("products computed in fp16"));
        // Not "larger": a NaN must not pass.
        ensure!(
            auto <= MOST * own,
            "{name}: auto loses {auto:.6}, more than {MOST} times the {own:.6} of the file"
        );
        let mut note = format!(
            "{name} {own:.6}, auto {:.2} times that ({fp16} of {products} products in FP16)",
            auto / own
        );
        let (precision, computed) = OTHER;
        ensure!(
            (fp16 < products) == (format == "Q6_K"),
            "{name}: {fp16} of {products} products in FP16, which is not what auto promises"
        );
        if fp16 == products {
            let (loss, stderr) = loss(Backend::With, precision)?;
            StatsTable::find(&stderr)?.offloaded(computed)?;
            ensure!(
                loss <= MOST_OF_OTHER * own,
                "{name}: {precision} loses {loss:.6}, more than {MOST_OF_OTHER} times {own:.6}"
            );
            note += &format!(", {precision} {:.2} times", loss / own);
        }
        notes.push(note);
    }
    Ok(CheckVerdict::Pass(format!(
        "mean KL divergence from the F16 model on the CPU, nats a token: {}",
        notes.join("; ")
    )))
}
