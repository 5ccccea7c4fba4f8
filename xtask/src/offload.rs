// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of docs/llama.md: what a whole model would bring, by the rules and the timing model.

use std::fmt::Write;

use anyhow::Result;
use npu_offload::{Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget};

/// The page that has them.
pub(crate) const PAGE: &str = "docs/llama.md";
/// Names of its sections.
pub(crate) const SPEED: &str = "llama-speed";
pub(crate) const MEMORY: &str = "llama-memory";
pub(crate) const SEQUENCES: &str = "llama-sequences";

/// Format of the files.
const FORMAT: &str = "Q8_0";
const MEGAHERTZ: [u64; 3] = [200, 600, 1000];
const PROMPTS: [usize; 4] = [128, 512, 2048, 8192];
const TOGETHER: [usize; 5] = [1, 4, 8, 16, 32];
/// Tokens of each of them before the one that is made.
const CONTEXT: usize = 512;
const MIB: u64 = 1 << 20;

fn format(name: &str) -> Result<NumberFormat> {
    NumberFormat::named(name).ok_or_else(|| anyhow::anyhow!("no format {name}"))
}

fn all_rules() -> [OffloadRules; 3] {
    MEGAHERTZ.map(|clock| OffloadRules::new(PlanTarget::at_clock(clock * 1_000_000)))
}

/// Tokens a second of prompts, and what limits them.
pub(crate) fn speed() -> Result<String> {
    let format = format(FORMAT)?;
    let rules = all_rules();
    let mut table = "| model | prompt | CPU alone | 200 MHz | 600 MHz | 1000 MHz | at 1000 MHz most of it is |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    for shape in ModelShape::ALL {
        for tokens in PROMPTS {
            let graphs = [0, 1, 2].map(|clock| Graph::new(shape, format, &rules[clock]));
            let cpu = graphs[0].on_cpu().prompt(tokens);
            let times = graphs.map(|graph| graph.prompt(tokens));
            let [slow, usual, fast] = times.map(|time| time.tokens_per_second(tokens));
            let share = 100.0 * times[2].largest().0 as f64 / times[2].total() as f64;
            writeln!(
                table,
                "| {} | {tokens} | {:.0} | {slow:.0} | {usual:.0} | {fast:.0} | {}, {share:.0} % |",
                shape.name,
                cpu.tokens_per_second(tokens),
                times[2].largest().1
            )?;
        }
    }
    Ok(table)
}

/// Memory of models.
pub(crate) fn memory() -> Result<String> {
    let rules = OffloadRules::new(PlanTarget::at_clock(MEGAHERTZ[0] * 1_000_000));
    let mut table = "| model | file | weights of the file | packed: layers | packed: output |\n\
                     |---|---|---|---|---|\n"
        .to_owned();
    for shape in ModelShape::ALL {
        for name in ["Q4_0", FORMAT, "F16"] {
            let graph = Graph::new(shape, format(name)?, &rules);
            let [layers, output] = graph.packed_bytes().map(|bytes| bytes / MIB);
            writeln!(
                table,
                "| {} | {name} | {} MiB | {layers} MiB | {output} MiB |",
                shape.name,
                graph.file_bytes() / MIB
            )?;
        }
    }
    Ok(table)
}

/// Tokens a second of several sequences.
pub(crate) fn sequences() -> Result<String> {
    let format = format(FORMAT)?;
    let rules = all_rules();
    let mut table = "| model | sequences | CPU alone | 200 MHz | 600 MHz | 1000 MHz |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    for shape in ModelShape::ALL {
        for sequences in TOGETHER {
            let graphs = [0, 1, 2].map(|clock| Graph::new(shape, format, &rules[clock]));
            let speed =
                |graph: &Graph<'_>| graph.step(sequences, CONTEXT).tokens_per_second(sequences);
            let [slow, usual, fast] = [0, 1, 2].map(|clock| speed(&graphs[clock]));
            writeln!(
                table,
                "| {} | {sequences} | {:.0} | {slow:.0} | {usual:.0} | {fast:.0} |",
                shape.name,
                speed(&graphs[0].on_cpu())
            )?;
        }
    }
    Ok(table)
}
