// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: Q8_0 weights run in INT8, and how far that moves the model.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::THREADS;
use super::model::Workshop;
use super::stats::Stats;
use super::stock::{Backend, Stock};
use crate::paths;
use crate::report::Verdict;

/// Name of the check.
pub(super) const NAME: &str = "q8_0-divergence";
const LIMIT: Duration = Duration::from_secs(300);
/// Some tools lose the end of their output now and then, with status 0.
const ATTEMPTS: usize = 5;
/// Tokens of a chunk, and chunks of the text.
const CONTEXT: &str = "128";
const CHUNKS: &str = "8";
/// Mean KL divergence of the CPU from itself that is still none: the file
/// keeps logits with 16 bits.
const ITSELF: f64 = 1e-5;
/// Mean KL divergence (nats a token) above which something is broken rather
/// than rounded: thirty times what INT8 costs on this model.
const BROKEN: f64 = 0.01;

/// Runs it.
pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<Verdict> {
    let model = workshop.tiny_q8_0(stock, 1)?;
    let base = workshop.path("q8_0-base.kl");
    let text = paths::root().join("LICENSE-APACHE");
    let (model, base) = (model.to_string_lossy(), base.to_string_lossy());
    let text = text.to_string_lossy();
    let common = [
        "-m", &*model, "-f", &*text, "-c", CONTEXT, "-b", CONTEXT, "--chunks", CHUNKS, "-t",
        THREADS,
    ];

    let save = [&common[..], &["--save-all-logits", &*base]].concat();
    stock
        .run("llama-perplexity", Backend::Without, &save, LIMIT)?
        .checked("llama-perplexity --save-all-logits")?;

    let compare = [
        &common[..],
        &["--kl-divergence-base", &*base, "--kl-divergence"],
    ]
    .concat();
    // The CPU against itself shows that the measure measures.
    let (itself, _) = measure(stock, Backend::Without, &compare)?;
    ensure!(
        itself.mean.abs() < ITSELF,
        "the CPU diverges from itself by {}: the comparison is worthless",
        itself.mean
    );
    let (ours, stderr) = measure(stock, Backend::With, &compare)?;
    let stats = Stats::find(&stderr)?;
    let products = stats.offloaded("int8")?;
    ensure!(
        ours.mean.is_finite() && ours.mean < BROKEN,
        "mean KL divergence {} from the CPU; {BROKEN} and more is no rounding",
        ours.mean
    );
    Ok(Verdict::Pass(format!(
        "{products} products in INT8 on {}; KL divergence against the CPU, same Q8_0 file: mean {:.6}, \
         maximum {:.6} nats; same top token {}",
        stats.device(),
        ours.mean,
        ours.maximum,
        ours.same_top,
    )))
}

/// What llama-perplexity says about two sets of logits.
#[derive(Debug, PartialEq)]
struct Divergence {
    mean: f64,
    maximum: f64,
    same_top: String,
}

fn measure(stock: &Stock, backend: Backend, arguments: &[&str]) -> Result<(Divergence, String)> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let output = stock
            .run("llama-perplexity", backend, arguments, LIMIT)?
            .checked("llama-perplexity --kl-divergence")?;
        match parse(&output.text()) {
            Ok(divergence) => return Ok((divergence, output.stderr)),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error.context(format!("in each of {ATTEMPTS} runs"))),
        None => bail!("no attempt was made"),
    }
}

fn parse(text: &str) -> Result<Divergence> {
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(name))
            .map(str::trim)
            .with_context(|| format!("llama-perplexity printed no `{name}`"))
    };
    let number = |name: &str| {
        let text = value(name)?;
        let first = text.split_whitespace().next().unwrap_or_default();
        first
            .parse::<f64>()
            .with_context(|| format!("`{name}` is followed by {text:?}"))
    };
    Ok(Divergence {
        mean: number("Mean    KLD:")?,
        maximum: number("Maximum KLD:")?,
        same_top: value("Same top p:")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_are_read_and_a_lost_tail_is_seen() {
        let text = "Mean    KLD:   0.000282 ±   0.000003\nMaximum KLD:   0.000550\n\
                    Same top p: 94.841 ± 0.986 %\n";
        let divergence = parse(text).unwrap();
        assert!((divergence.mean - 0.000_282).abs() < 1e-12);
        assert!((divergence.maximum - 0.000_55).abs() < 1e-12);
        assert_eq!(divergence.same_top, "94.841 ± 0.986 %");
        assert!(parse(&text[..60]).is_err());
    }
}
