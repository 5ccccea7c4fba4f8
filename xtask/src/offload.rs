// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of docs/llama-speed.md: prompt speed of whole models, by the offload rules and the
//! timing model.

use anyhow::{Context, Result};
use npu_offload::{AttentionChoice, Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget};

use crate::generated::table;

/// Format of the files.
const FORMAT: &str = "Q8_0";
/// Clocks of the NPU.
const MEGAHERTZ: [u64; 3] = [200, 600, 1000];
const PROMPTS: [usize; 4] = [128, 512, 2048, 8192];

/// The offload rules of a board with default plans, at a clock in MHz.
fn rules(megahertz: u64) -> OffloadRules {
    OffloadRules::new(PlanTarget::at_clock(megahertz * 1_000_000))
}

/// Prompt tokens per second, and their bottleneck.
pub(crate) fn speed() -> Result<String> {
    let format = NumberFormat::named(FORMAT).with_context(|| format!("no format {FORMAT}"))?;
    let rules = MEGAHERTZ.map(rules);
    let mut matmuls_only = self::rules(MEGAHERTZ[1]);
    matmuls_only.attention = AttentionChoice::Never;
    let mut rows = Vec::new();
    for shape in ModelShape::ALL {
        let graphs = rules
            .each_ref()
            .map(|rules| Graph::new(shape, format, rules));
        for tokens in PROMPTS {
            let cpu = graphs[0].on_cpu().prompt(tokens).tokens_per_second(tokens);
            let times = graphs.each_ref().map(|graph| graph.prompt(tokens));
            let (largest, what) = times[2].largest();
            let share = 100.0 * largest as f64 / times[2].total() as f64;
            let [slow, usual, fast] = times.map(|time| time.tokens_per_second(tokens));
            let without = Graph::new(shape, format, &matmuls_only).prompt(tokens);
            let without = without.tokens_per_second(tokens);
            rows.push(format!(
                "{} | {tokens} | {cpu:.0} | {slow:.0} | {usual:.0} | {without:.0} | {fast:.0} | {what}, {share:.0} %",
                shape.name
            ));
        }
    }
    let heads = "model | prompt | CPU alone | 200 MHz | 600 MHz | 600 MHz, attention on the CPU | \
                 1000 MHz | largest share, at 1000 MHz";
    Ok(table(heads, rows))
}
