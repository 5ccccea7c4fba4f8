// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of docs/many-answers.md: the cost of several answers and of drafted tokens, by the
//! offload rules and the timing model.

use anyhow::Result;
use npu_offload::{Graph, ModelShape, NumberFormat, OffloadRules};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;
use crate::offload::{CONTEXT, FORMAT, TOGETHER, format, rules};

const MEGAHERTZ: [u64; 2] = [200, 600];
/// Rows of a batch that checks a draft of 3, 7 or 15 tokens.
const VERIFIED: [usize; 3] = [4, 8, 16];
/// Probabilities that a drafted token is right if those before it are.
const ACCEPTED: [f64; 2] = [0.7, 0.9];
/// Milliseconds of one step of this number of sequences.
fn step_ms(graph: &Graph<'_>, sequences: usize) -> f64 {
    1e3 * seconds(graph.step(sequences, CONTEXT).total())
}

/// A model on the CPU alone, and with the NPU at each clock.
fn places<'r>(
    shape: ModelShape,
    format: NumberFormat,
    rules: &'r [OffloadRules; 2],
) -> [Graph<'r>; 3] {
    let [slow, fast] = rules
        .each_ref()
        .map(|rules| Graph::new(shape, format, rules));
    [slow.on_cpu(), slow, fast]
}

/// Time of a step that makes a token for each of N answers, and its ratio to the time for one
/// answer.
pub(crate) fn cost() -> Result<String> {
    let (format, rules) = (format(FORMAT)?, MEGAHERTZ.map(rules));
    let places = places(ModelShape::LLAMA32_1B, format, &rules);
    let rows = TOGETHER.map(|answers| {
        let cells = places.each_ref().map(|place| {
            let (all, one) = (step_ms(place, answers), step_ms(place, 1));
            format!("{all:.0} ms, {:.1} x", all / one)
        });
        format!("{answers} | {}", cells.join(" | "))
    });
    let heads = "answers | CPU alone | 200 MHz | 600 MHz";
    Ok(table(heads, rows))
}

/// Mean number of tokens from a checked batch of `rows`: the drafted tokens before the first wrong
/// one, and the model's own next token.
fn gained(rows: usize, accepted: f64) -> f64 {
    (1.0 - accepted.powi(rows as i32)) / (1.0 - accepted)
}

/// Tokens per second with drafts of a smaller model on the CPU, and with drafts that take no time,
/// such as n-grams found in the text so far.
pub(crate) fn speculative() -> Result<String> {
    let (format, rules) = (format(FORMAT)?, MEGAHERTZ.map(rules));
    let places = places(ModelShape::LLAMA32_3B, format, &rules);
    let draft = Graph::new(ModelShape::LLAMA32_1B, format, &rules[0]).on_cpu();
    let alone = 1e3 / step_ms(&places[0], 1);
    let mut rows = vec![format!("none | | | {alone:.1} | {alone:.1} | {alone:.1}")];
    for (name, draft_ms) in [(draft.shape.name, step_ms(&draft, 1)), ("n-grams", 0.0)] {
        for batch in VERIFIED {
            for accepted in ACCEPTED {
                let drafted = batch - 1;
                let cells = places.each_ref().map(|place| {
                    let all_ms = draft_ms * drafted as f64 + step_ms(place, batch);
                    format!("{:.1}", 1e3 * gained(batch, accepted) / all_ms)
                });
                let (cells, right) = (cells.join(" | "), 100.0 * accepted);
                rows.push(format!("{name} | {drafted} | {right:.0} % | {cells}"));
            }
        }
    }
    let heads = "draft | drafted tokens | right, each | CPU alone | 200 MHz | 600 MHz";
    Ok(table(heads, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_a_token_to_all_of_them() {
        assert!((gained(4, 0.0) - 1.0).abs() < 1e-12);
        assert!((gained(4, 0.5) - 1.875).abs() < 1e-12);
        assert!(gained(4, 0.999) > 3.99);
    }
}
