// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: the same model and prompt give the same text with our backend.
//!
//! Greedy decoding turns logits into text, and two logits that are nearly
//! equal can change places through a rounding. So a differing token is
//! accepted where the CPU's own logits of the two tokens are less than
//! [`TIE`] apart, and the rest of the text must then be what the CPU writes
//! after that token. Texts carry no logits, so the stock llama-server, without
//! our backend, is asked: it takes tokens as its prompt and gives the log
//! probabilities of the best candidates at each step, whose differences are
//! those of the logits.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::THREADS;
use super::model::Workshop;
use super::server::{Server, Step};
use super::stats::Stats;
use super::stock::{Backend, Stock};
use crate::process::Output;
use crate::report::Verdict;

/// Name of the check.
pub(super) const NAME: &str = "f16-same-text";
const LIMIT: Duration = Duration::from_secs(120);
/// Some tools lose the end of their output now and then, with status 0.
const ATTEMPTS: usize = 20;
/// Tokens to write.
const TOKENS: usize = 64;
/// Logits nearer to each other than this may change places.
const TIE: f64 = 1e-3;
/// How many ties in one text are followed up.
const MOST_TIES: usize = 4;

/// Prompts long enough to be offloaded, each with a model of its own seed. Of
/// sixty seeds these were chosen because in their texts the best token leads
/// the second by more than 0.017 at each step, on an x86-64 CPU: some ten
/// times the rounding noise of these models' logits. A difference is then more
/// than noise on other CPUs too, whose kernels sum in another order.
pub(super) const PROMPTS: [(u32, &str); 3] = [
    (
        49,
        "The quick brown fox jumps over the lazy dog, and then it thinks about the reason for \
         doing so again and again.",
    ),
    (
        54,
        "In the beginning there was a matrix, and it was multiplied by another one; the product \
         was good, but it took rather long.",
    ),
    (
        15,
        "0 1 1 2 3 5 8 13 21 34 55 89 144: each number is the sum of the two before it. Question: \
         what comes next? Answer:",
    ),
];

/// Runs it.
pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<Verdict> {
    let mut notes = Vec::new();
    for (seed, prompt) in PROMPTS {
        let texts = compare(stock, workshop, seed, prompt)
            .with_context(|| format!("model with seed {seed}"))?;
        notes.push(format!("seed {seed}: {texts}"));
    }
    Ok(Verdict::Pass(format!(
        "{TOKENS} tokens each, {THREADS} threads on both sides; ties are judged by the CPU's \
         logits, from llama-server; {}",
        notes.join("; ")
    )))
}

/// What one model wrote after one prompt.
#[derive(Debug)]
pub(super) struct Texts {
    /// Without our backend.
    pub(super) without: Vec<u8>,
    /// With it.
    pub(super) with: Vec<u8>,
    /// How far apart the CPU's logits are at each tie that explains a
    /// difference.
    ties: Vec<f64>,
    /// The smallest lead of a best token in the CPU's text, as logits.
    smallest_gap: f64,
    /// Products that ran in FP16.
    products: u64,
    /// The backend's statistics.
    pub(super) statistics: String,
}

impl fmt::Display for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.with == self.without {
            f.write_str("same text")?;
        } else {
            let gaps: Vec<String> = self.ties.iter().map(|gap| format!("{gap:.6}")).collect();
            write!(f, "same text but for ties of {}", gaps.join(", "))?;
        }
        write!(
            f,
            " ({} products in FP16, smallest top-2 gap {:.6})",
            self.products, self.smallest_gap
        )
    }
}

/// Has a model go on from `prompt` on both sides.
///
/// # Errors
/// If the texts differ by more than ties, or nothing was offloaded.
pub(super) fn compare(
    stock: &Stock,
    workshop: &Workshop,
    seed: u32,
    prompt: &str,
) -> Result<Texts> {
    let model = workshop.tiny_f16(seed)?;
    let model = model.to_string_lossy();
    let server = Server::start(stock, &model, THREADS)?;
    let tokens = server.tokenize(prompt)?;
    let reference = server.complete(&tokens, TOKENS)?;
    let expected: Vec<u8> = reference.iter().flat_map(Step::bytes).copied().collect();

    let seed = seed.to_string();
    let tokens_to_write = TOKENS.to_string();
    #[rustfmt::skip]
    let arguments = [
        "-m", &*model, "-p", prompt, "-n", &tokens_to_write, "--temp", "0", "--seed", &seed,
        "--ignore-eos", "-no-cnv", "--no-display-prompt", "-t", THREADS, "-tb", THREADS,
    ];
    // The CPU's text is known in full, so a lost tail shows.
    let without = complete(stock, Backend::Without, &arguments, &expected)?;
    ensure!(
        generated(&without) == expected,
        "llama-completion wrote {:?}, llama-server {:?}, both without our backend",
        String::from_utf8_lossy(generated(&without)),
        String::from_utf8_lossy(&expected)
    );
    let with = complete(stock, Backend::With, &arguments, &expected)?;
    let cpu = |prefix: &[u32], count| server.complete(&[&tokens, prefix].concat(), count);
    let ties = explain(&cpu, generated(&with), TOKENS)?.with_context(|| {
        format!(
            "the texts differ, and not by ties. CPU: {:?}; with us: {:?}",
            String::from_utf8_lossy(&expected),
            String::from_utf8_lossy(generated(&with))
        )
    })?;
    let stats = Stats::find(&with.stderr)?;
    stats.has_times()?;
    Ok(Texts {
        without: generated(&without).to_owned(),
        with: generated(&with).to_owned(),
        ties,
        smallest_gap: reference.iter().map(Step::gap).fold(f64::MAX, f64::min),
        products: stats.offloaded("fp16")?,
        statistics: stats.to_string(),
    })
}

/// Runs llama-completion, again where it lost the end of its text or our table:
/// `expected` goes on where the text stops. Any other text is the result.
fn complete(
    stock: &Stock,
    backend: Backend,
    arguments: &[&str],
    expected: &[u8],
) -> Result<Output> {
    for _ in 0..ATTEMPTS {
        let output = stock
            .run("llama-completion", backend, arguments, LIMIT)?
            .checked("llama-completion")?;
        let text = generated(&output);
        let cut = text.len() < expected.len() && expected.starts_with(text);
        let untold = backend == Backend::With && Stats::find(&output.stderr).is_err();
        if !cut && !untold {
            return Ok(output);
        }
    }
    bail!("llama-completion lost the end of its output in each of {ATTEMPTS} runs")
}

/// The text of llama-completion, without the newlines that it adds. The models
/// write no newlines themselves.
fn generated(output: &Output) -> &[u8] {
    let end = output.stdout.iter().rposition(|byte| *byte != b'\n');
    &output.stdout[..end.map_or(0, |last| last + 1)]
}

/// The CPU's continuation of a prompt by some tokens: the given number of
/// steps.
type Continue<'a> = dyn Fn(&[u32], usize) -> Result<Vec<Step>> + 'a;

/// Explains `text`, of `count` tokens, by what the CPU writes: the gaps of the
/// ties that it takes, none if the texts are the same; `None` if ties do not
/// explain it.
fn explain(cpu: &Continue<'_>, text: &[u8], count: usize) -> Result<Option<Vec<f64>>> {
    follow(cpu, &[], text, count, MOST_TIES)
}

fn follow(
    cpu: &Continue<'_>,
    prefix: &[u32],
    text: &[u8],
    count: usize,
    ties_left: usize,
) -> Result<Option<Vec<f64>>> {
    let steps = if count == 0 {
        Vec::new()
    } else {
        cpu(prefix, count)?
    };
    // How far the CPU's own choices go along with the text.
    let mut rests = vec![text];
    for step in &steps {
        let rest = rests[rests.len() - 1];
        match rest.strip_prefix(step.bytes()) {
            Some(rest) => rests.push(rest),
            None => break,
        }
    }
    let agreed = rests.len() - 1;
    if agreed == steps.len() && rests[agreed].is_empty() {
        return Ok(Some(Vec::new()));
    }
    if ties_left == 0 {
        return Ok(None);
    }
    // A tie may have been taken before the texts part, where one token's text
    // begins with another's: latest first.
    for index in (0..=agreed.min(steps.len().saturating_sub(1))).rev() {
        for candidate in steps[index].rivals(TIE) {
            let Some(rest) = rests[index].strip_prefix(&*candidate.bytes) else {
                continue;
            };
            let taken = steps[..index].iter().map(Step::id).chain([candidate.id]);
            let prefix: Vec<u32> = prefix.iter().copied().chain(taken).collect();
            let found = follow(cpu, &prefix, rest, count - index - 1, ties_left - 1)?;
            if let Some(mut gaps) = found {
                gaps.insert(0, candidate.gap);
                return Ok(Some(gaps));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llama::server::Candidate;

    /// A language model of three rules: writes a, b, c, a, b, c ...; after an
    /// x, writes only y; and at every fourth token x is a near tie.
    fn cpu(prefix: &[u32], count: usize) -> Result<Vec<Step>> {
        let mut tokens = prefix.to_vec();
        let mut steps = Vec::new();
        for _ in 0..count {
            let candidate = |letter: u8, gap| Candidate {
                id: u32::from(letter),
                bytes: vec![letter],
                gap,
            };
            let best = if tokens.contains(&u32::from(b'x')) {
                b'y'
            } else {
                b"abc"[tokens.len() % 3]
            };
            let gap = if tokens.len() % 4 == 3 { 0.0005 } else { 0.5 };
            steps.push(Step::new(vec![candidate(best, 0.0), candidate(b'x', gap)]).unwrap());
            tokens.push(u32::from(best));
        }
        Ok(steps)
    }

    #[test]
    fn the_same_text_needs_no_tie() {
        assert_eq!(explain(&cpu, b"abcabcab", 8).unwrap(), Some(vec![]));
    }

    #[test]
    fn a_tie_is_accepted_with_what_follows_it() {
        assert_eq!(explain(&cpu, b"abcxyyyy", 8).unwrap(), Some(vec![0.0005]));
    }

    #[test]
    fn a_token_without_tie_is_a_difference() {
        assert_eq!(explain(&cpu, b"abxyyyyy", 8).unwrap(), None);
    }

    #[test]
    fn what_follows_a_tie_must_be_the_cpus() {
        assert_eq!(explain(&cpu, b"abcxyyzy", 8).unwrap(), None);
    }

    #[test]
    fn a_lost_tail_is_a_difference() {
        assert_eq!(explain(&cpu, b"abcabca", 8).unwrap(), None);
        assert_eq!(explain(&cpu, b"", 8).unwrap(), None);
    }
}
