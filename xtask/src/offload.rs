// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of docs/speed.md: prompt speed of whole models, and where its time goes, by the
//! offload rules and the timing model.

use anyhow::{Context, Result};
use npu_offload::{Graph, GraphTime, ModelShape, NumberFormat, OffloadRules, PlanTarget};

use crate::generated::table;

/// Format of the files.
const FORMAT: &str = "Q8_0";
/// Clocks of the NPU: mainline's, and that of most published figures.
const MEGAHERTZ: [u64; 2] = [200, 600];
const PROMPTS: [usize; 2] = [512, 8192];

/// A board with default plans, at a clock in MHz.
fn target(megahertz: u64) -> PlanTarget {
    PlanTarget::at_clock(megahertz * 1_000_000)
}

/// Prompt tokens per second.
pub(crate) fn prompts() -> Result<String> {
    let format = NumberFormat::named(FORMAT).with_context(|| format!("no format {FORMAT}"))?;
    let rules = MEGAHERTZ.map(|clock| OffloadRules::new(target(clock)));
    let alone = MEGAHERTZ.map(|clock| OffloadRules::new(target(clock).npu_alone()));
    let mut rows = Vec::new();
    for shape in ModelShape::ALL {
        let [graphs, alone] = [&rules, &alone].map(|rules| {
            rules
                .each_ref()
                .map(|rules| Graph::new(shape, format, rules))
        });
        for tokens in PROMPTS {
            let cpu = range(&graphs[0].on_cpu(), tokens);
            let [slow, fast] = graphs.each_ref().map(|graph| range(graph, tokens));
            let gain = |at: usize| {
                let [with, without] = [&graphs, &alone].map(|of| of[at].prompt(tokens).total());
                100.0 * (without as f64 / with.max(1) as f64 - 1.0)
            };
            rows.push(format!(
                "{} | {tokens} | {cpu} | {slow} | {fast} | {:.0}, {:.0} %",
                shape.name,
                gain(0),
                gain(1),
            ));
        }
    }
    let heads = "model | prompt, tokens | CPU alone | 200 MHz, modelled | 600 MHz, modelled | \
                 gained by jobs on the CPU";
    Ok(table(heads, rows))
}

/// Likely tokens per second of a prompt, and the upper bound.
fn range(graph: &Graph<'_>, tokens: usize) -> String {
    let rate = |graph: &Graph<'_>| graph.prompt(tokens).tokens_per_second(tokens);
    format!("{:.0} ({:.0})", rate(graph), rate(&graph.upper_bound()))
}

/// Models, formats and lengths of the prompts whose time is divided.
const DIVIDED: ([ModelShape; 2], [&str; 2], [usize; 2]) = (
    [ModelShape::QWEN3_0_6B, ModelShape::LLAMA32_1B],
    ["Q8_0", "F16"],
    [512, 2048],
);

/// Shares of the likely time of prompts, at both clocks.
pub(crate) fn shares() -> Result<String> {
    /// A part of a graph's time.
    type Part = fn(&GraphTime) -> u64;
    let parts: [Part; 5] = [
        |time| time.npu_work(),
        |time| time.driver,
        |time| time.uncovered,
        |time| time.attention,
        |time| time.matmuls.saturating_add(time.other),
    ];
    let rules = MEGAHERTZ.map(|clock| OffloadRules::new(target(clock)));
    let (models, formats, prompts) = DIVIDED;
    let mut rows = Vec::new();
    for (shape, name) in models.iter().flat_map(|s| formats.map(|name| (*s, name))) {
        let format = NumberFormat::named(name).with_context(|| format!("no format {name}"))?;
        for tokens in prompts {
            let times = rules
                .each_ref()
                .map(|rules| Graph::new(shape, format, rules).prompt(tokens));
            let cells = parts.map(|part| {
                let percent =
                    |time: &GraphTime| 100.0 * part(time) as f64 / time.total().max(1) as f64;
                let [slow, fast] = times.each_ref().map(percent);
                format!("{slow:.0}, {fast:.0}")
            });
            rows.push(format!(
                "{} {name}, {tokens} | {}",
                shape.name,
                cells.join(" | ")
            ));
        }
    }
    let heads = "prompt, tokens | cores move and multiply | kicks and starts | CPU while no core works | \
                 attention on the CPU | rest, on the CPU";
    Ok(table(heads, rows))
}
