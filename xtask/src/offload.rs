// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of docs/speed.md: prompt speed of whole models, by the offload rules and the timing
//! model.

use anyhow::{Context, Result};
use npu_offload::{Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget};

use crate::generated::table;

/// Format of the files.
const FORMAT: &str = "Q8_0";
/// Clocks of the NPU: mainline's, and that of most published figures.
const MEGAHERTZ: [u64; 2] = [200, 600];
const PROMPTS: [usize; 2] = [512, 8192];

/// The offload rules of a board with default plans, at a clock in MHz.
fn rules(megahertz: u64) -> OffloadRules {
    OffloadRules::new(PlanTarget::at_clock(megahertz * 1_000_000))
}

/// Prompt tokens per second.
pub(crate) fn prompts() -> Result<String> {
    let format = NumberFormat::named(FORMAT).with_context(|| format!("no format {FORMAT}"))?;
    let rules = MEGAHERTZ.map(rules);
    let mut rows = Vec::new();
    for shape in ModelShape::ALL {
        let graphs = rules
            .each_ref()
            .map(|rules| Graph::new(shape, format, rules));
        for tokens in PROMPTS {
            let cpu = range(&graphs[0].on_cpu(), tokens);
            let [slow, fast] = graphs.each_ref().map(|graph| range(graph, tokens));
            rows.push(format!(
                "{} | {tokens} | {cpu} | {slow} | {fast}",
                shape.name
            ));
        }
    }
    let heads = "model | prompt, tokens | CPU alone | 200 MHz, modelled | 600 MHz, modelled";
    Ok(table(heads, rows))
}

/// Likely tokens per second of a prompt, and the upper bound.
fn range(graph: &Graph<'_>, tokens: usize) -> String {
    let rate = |graph: &Graph<'_>| graph.prompt(tokens).tokens_per_second(tokens);
    format!("{:.0} ({:.0})", rate(graph), rate(&graph.upper_bound()))
}
