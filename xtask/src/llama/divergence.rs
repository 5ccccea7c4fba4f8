// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: what `auto` chooses keeps to its promise. Against the model in F16 it
//! loses at most 1.5 times what the file has lost already when the CPU computes it
//! where weights are trained, and twice that where they are random, with
//! outliers in the activations and without.
//!
//! Q8_0 is the hardest case, since such a file loses least. `cargo xtask llama quality` has
//! all types.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::logits::{self, TextExtent};
use super::model::{ModelRecipe, Workshop};
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "q8_0-divergence";
const EXTENT: TextExtent = TextExtent {
    context: 128,
    chunks: 4,
};
/// The loss that passes, as a multiple of the file's own, where weights are trained.
pub(super) const TRAINED_BAR: f64 = 1.5;
/// The same where they are random.
pub(super) const RANDOM_BAR: f64 = 2.0;
/// The same in rows of 1024. Of 32 normally distributed numbers the largest is 2.3 standard
/// deviations, of a row of 256 it is 3.0, of 1024 3.4: steps grow with it.
const LONG_ROWS_BAR: f64 = 2.5;
/// A rounding of all weights must show: below this the measure measures
/// nothing.
const NOTHING: f64 = 1e-6;

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let [trained, outliers] = workshop.trained()?;
    let random = |recipe, bar| Ok::<_, anyhow::Error>((workshop.cook(recipe)?, bar));
    // Besides, long rows, where the largest number is largest, and a coarser type.
    let cases: [((PathBuf, f64), &str); 5] = [
        ((trained, TRAINED_BAR), "Q8_0"),
        ((outliers, TRAINED_BAR), "Q8_0"),
        (random(ModelRecipe::PLAIN, RANDOM_BAR)?, "Q8_0"),
        (random(ModelRecipe::DEEP, LONG_ROWS_BAR)?, "Q8_0"),
        (random(ModelRecipe::OUTLIERS, RANDOM_BAR)?, "Q6_K"),
    ];
    let mut notes = Vec::new();
    let mut missed = 0;
    for ((full, bar), format) in cases {
        let name = full.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{} {format}", name.trim_end_matches("-f16"));
        let model = workshop.quantised(stock, &full, format)?;
        let (exact, _) = logits::run(stock, Backend::Without, &full, EXTENT, &[])?;
        let loss = |backend| -> Result<(f64, String)> {
            let (logits, stderr) = logits::run(stock, backend, &model, EXTENT, &[])?;
            Ok((exact.divergence(&logits)?.mean, stderr))
        };
        let (own, _) = loss(Backend::Without)?;
        ensure!(
            own > NOTHING,
            "{name}: a loss of {own} is none: the comparison is worthless"
        );
        let (auto, stderr) = loss(Backend::With)?;
        let products = StatsTable::find(&stderr)?.offloaded("int8-hadamard")?;
        let times = auto / own;
        // Not "larger": a NaN must not pass.
        let good = times <= bar;
        missed += usize::from(!good);
        let sign = if good { "at most" } else { "MORE THAN" };
        notes.push(format!(
            "{name} {own:.6}, auto {times:.2} times that, {sign} {bar} ({products} products)"
        ));
    }
    let notes = notes.join("; ");
    ensure!(missed == 0, "{missed} bars are missed: {notes}");
    Ok(CheckVerdict::Pass(format!(
        "mean KL divergence from the F16 model on the CPU, nats a token: {notes}"
    )))
}
