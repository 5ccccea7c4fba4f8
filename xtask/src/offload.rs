// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of docs/llama-speed.md, docs/llama-offload.md and docs/sequences.md: speed and memory of
//! whole models, by the offload rules and the timing model.

use anyhow::{Context, Result};
use npu_matmul::PlanOptions;
use npu_offload::{AttentionChoice, Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget};

use crate::generated::table;
use crate::plans::FDS;

/// Format of the files.
pub(crate) const FORMAT: &str = "Q8_0";
/// Clocks of the NPU in tables of whole models.
pub(crate) const MEGAHERTZ: [u64; 3] = [200, 600, 1000];
const PROMPTS: [usize; 4] = [128, 512, 2048, 8192];
/// Numbers of parallel sequences.
pub(crate) const TOGETHER: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Tokens of each sequence before the one being generated.
pub(crate) const CONTEXT: usize = 512;
const MIB: u64 = 1 << 20;

/// A format by ggml's name.
pub(crate) fn format(name: &str) -> Result<NumberFormat> {
    NumberFormat::named(name).with_context(|| format!("no format {name}"))
}

/// The offload rules of a board with default plans, at a clock in MHz.
pub(crate) fn rules(megahertz: u64) -> OffloadRules {
    OffloadRules::new(PlanTarget::at_clock(megahertz * 1_000_000))
}

/// Prompt tokens per second, and their bottleneck.
pub(crate) fn speed() -> Result<String> {
    let (format, rules) = (format(FORMAT)?, MEGAHERTZ.map(rules));
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

/// Memory of models: file and packed weights.
pub(crate) fn memory() -> Result<String> {
    let rules = rules(MEGAHERTZ[0]);
    let mut rows = Vec::new();
    for shape in ModelShape::ALL {
        for name in ["Q4_0", FORMAT, "F16"] {
            let graph = Graph::new(shape, format(name)?, &rules);
            let [layers, output] = graph.packed_bytes().map(|bytes| bytes / MIB);
            let file = graph.file_bytes() / MIB;
            rows.push(format!(
                "{} | {name} | {file} MiB | {layers} MiB | {output} MiB",
                shape.name
            ));
        }
    }
    Ok(table(
        "model | file | weights of the file | packed: layers | packed: output",
        rows,
    ))
}

/// Tokens per second of several sequences.
pub(crate) fn sequences() -> Result<String> {
    let format = format(FORMAT)?;
    let calibrated = [200, 600].map(|megahertz| {
        let options = PlanOptions::calibrated(megahertz * 1_000_000);
        OffloadRules::new(PlanTarget::new(FDS, options))
    });
    let rules: Vec<_> = MEGAHERTZ.into_iter().map(rules).chain(calibrated).collect();
    let mut rows = Vec::new();
    for shape in ModelShape::ALL {
        let graphs = rules.iter().map(|rules| Graph::new(shape, format, rules));
        let on_npu: Vec<_> = graphs.collect();
        let on_cpu = Graph::new(shape, format, &rules[0]).on_cpu();
        for sequences in TOGETHER {
            let speeds = [&on_cpu].into_iter().chain(&on_npu).map(|graph| {
                let speed = graph.step(sequences, CONTEXT).tokens_per_second(sequences);
                format!(" | {speed:.0}")
            });
            let speeds: String = speeds.collect();
            rows.push(format!("{} | {sequences}{speeds}", shape.name));
        }
    }
    Ok(table(
        "model | sequences | CPU alone | 200 MHz | 600 MHz | 1000 MHz | 200 MHz, calibrated | 600 MHz, calibrated",
        rows,
    ))
}

/// Tokens per second of one sequence if all matmuls are offloaded.
pub(crate) fn tokens() -> Result<String> {
    let rules = MEGAHERTZ.map(|megahertz| {
        let mut rules = rules(megahertz);
        rules.min_rows = Some(1);
        rules
    });
    let mut rows = Vec::new();
    for shape in ModelShape::ALL {
        for name in ["Q4_0", FORMAT, "F16"] {
            let format = format(name)?;
            let speed = |graph: &Graph<'_>| graph.step(1, CONTEXT).tokens_per_second(1);
            let on_npu = [0, 1, 2].map(|clock| speed(&Graph::new(shape, format, &rules[clock])));
            let cpu = speed(&Graph::new(shape, format, &rules[0]).on_cpu());
            let on_npu = on_npu.map(|npu| format!(" | {npu:.1} ({:.2})", npu / cpu));
            rows.push(format!(
                "{} | {name} | {cpu:.1}{}",
                shape.name,
                on_npu.concat()
            ));
        }
    }
    Ok(table(
        "model | file | CPU | 200 MHz | 600 MHz | 1000 MHz",
        rows,
    ))
}
