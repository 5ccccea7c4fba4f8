// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: the same model gets the same placement, and gives the same bits, in each of ten runs on
//! a loaded machine. Nothing is decided by a time that was measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use anyhow::{Result, ensure};

use super::logits::{self, TextExtent};
use super::model::{ModelRecipe, Workshop};
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "same-every-run";
const RUNS: usize = 10;
/// One batch, of as many rows as some of the small weights need to be worth it, and others not.
const EXTENT: TextExtent = TextExtent {
    context: 256,
    chunks: 1,
};
/// Threads that keep the machine busy.
const LOAD: usize = 4;
/// Rows of the statistics that tell what was placed where.
const ROWS: [&str; 7] = [
    "products computed in fp16",
    "products computed in int8-hadamard",
    "multiply-adds (millions)",
    "weight tensors on the NPU",
    "KiB of weights on the NPU",
    "weight tensors left to the CPU",
    "jobs",
];

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let full = workshop.cook(ModelRecipe::PLAIN)?;
    let model = workshop.quantised(stock, &full, "Q4_0")?;
    // What the rules say, not what suits tiny models.
    let set = [("GGML_ROCKET_MIN_M", "auto")];
    let run = || -> Result<_> {
        let (logits, stderr) = logits::run(stock, Backend::With, &model, EXTENT, &set)?;
        let stats = StatsTable::find(&stderr)?;
        stats.products()?;
        Ok((logits, ROWS.map(|row| stats.count(row))))
    };
    let first = run()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..LOAD {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let others = (1..RUNS).try_for_each(|number| {
            let again = run()?;
            ensure!(
                again.1 == first.1,
                "run {number} placed {:?}, and the first {:?}, of {ROWS:?}",
                again.1,
                first.1
            );
            ensure!(again.0 == first.0, "run {number} gave other bits");
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        others
    })?;
    let counts: Vec<String> = ROWS
        .iter()
        .zip(first.1)
        .map(|(row, count)| format!("{row}: {count}"))
        .collect();
    Ok(CheckVerdict::Pass(format!(
        "{RUNS} runs with the same logits, {LOAD} threads beside them; {}",
        counts.join(", ")
    )))
}
