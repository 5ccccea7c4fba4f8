// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a model thinks of each next token of a text, and how far two runs of
//! it are apart.
//!
//! `llama-perplexity --save-all-logits` writes the logits of all tokens into a
//! file, and `--kl-divergence` compares such a file with a second run. The
//! comparison here is the same sum over two files. It takes one run for each
//! side instead of one for each pair, and loses no output: the tool logs in a
//! thread, whose last lines are missing when the machine is busy.
//!
//! The file: `_logits_`; the numbers of tokens in a chunk, of the vocabulary
//! and of chunks, 32 bits each; all tokens, 32 bits each; then for each token
//! in the second half of each chunk but the last one the logarithms of all
//! probabilities, as a scale and a smallest one (f32) with 16 bits for each.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::attempts::until_whole;
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use crate::paths;
use crate::process::{self, CommandOutput};

const LIMIT: Duration = Duration::from_secs(600);
const MAGIC: &[u8] = b"_logits_";

/// The part of a text that a run reads, from its beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextExtent {
    /// Tokens of a chunk, all in one batch.
    pub(super) context: u32,
    /// Number of chunks.
    pub(super) chunks: u32,
}

/// Logarithms of the probabilities of each token of the vocabulary, for each
/// place of a text.
#[derive(Debug, PartialEq)]
pub(super) struct Logits {
    vocabulary: usize,
    values: Vec<f32>,
}

/// How far the probabilities of one run are from those of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Divergence {
    /// Kullback-Leibler divergence, nats a token.
    pub(super) mean: f64,
    /// Part of the places where both take the same token for the likeliest.
    pub(super) same_top: f64,
}

/// The logits of `model` on a text of the repository, and what the backend
/// told of itself. `set` is for the environment.
pub(super) fn run(
    stock: &Stock,
    backend: Backend,
    model: &Path,
    extent: TextExtent,
    set: &[(&str, &str)],
) -> Result<(Logits, String)> {
    let text = paths::root().join("LICENSE-APACHE");
    let file = paths::target().join("llama/logits.unread");
    let context = extent.context.to_string();
    let once = || {
        let mut command = stock.command("llama-perplexity", backend)?;
        command
            .arg("-m")
            .arg(model)
            .arg("-f")
            .arg(&text)
            .args(["-c", &context, "-b", &context, "-ub", &context])
            .args(["--chunks", &extent.chunks.to_string()])
            .args(["-t", THREADS, "-tb", THREADS])
            .arg("--save-all-logits")
            .arg(&file)
            .envs(set.iter().copied());
        process::run(command, LIMIT)?.checked("llama-perplexity")
    };
    let told = |output: &CommandOutput| {
        backend == Backend::Without || StatsTable::find(&output.stderr).is_ok()
    };
    let output = until_whole("llama-perplexity", once, told)?;
    let bytes = fs::read(&file).context("reading what llama-perplexity saved")?;
    fs::remove_file(&file).context("removing the logits")?;
    Ok((Logits::parse(&bytes)?, output.stderr))
}

impl Logits {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut rest = bytes;
        let magic = rest.split_off(..MAGIC.len());
        ensure!(magic == Some(MAGIC), "this is no file of logits");
        let mut number = || -> Result<usize> {
            let bytes = rest.split_off(..size_of::<u32>()).context("cut off")?;
            Ok(u32::from_le_bytes(bytes.try_into()?).try_into()?)
        };
        let (context, vocabulary, chunks) = (number()?, number()?, number()?);
        let tokens = context * chunks * size_of::<u32>();
        rest.split_off(..tokens).context("cut off")?;
        // A scale, a smallest one, and the others in whole pairs.
        let row = 2 * size_of::<f32>() + vocabulary.next_multiple_of(2) * size_of::<u16>();
        let rows = chunks * context.saturating_sub(1 + context / 2);
        ensure!(
            vocabulary > 0 && rows > 0 && rest.len() == rows * row,
            "{} bytes for {rows} places and {vocabulary} tokens",
            rest.len()
        );
        let mut values = Vec::with_capacity(rows * vocabulary);
        for row in rest.chunks_exact(row) {
            let (head, steps) = row.split_at(2 * size_of::<f32>());
            let float = |at: usize| f32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
            let (scale, least) = (float(0), float(size_of::<f32>()));
            let steps = steps.chunks_exact(size_of::<u16>()).take(vocabulary);
            let steps = steps.map(|step| f32::from(u16::from_le_bytes([step[0], step[1]])));
            values.extend(steps.map(|step| scale.mul_add(step, least)));
        }
        Ok(Self { vocabulary, values })
    }

    /// The divergence of `other` from these.
    pub(super) fn divergence(&self, other: &Self) -> Result<Divergence> {
        ensure!(
            self.vocabulary == other.vocabulary && self.values.len() == other.values.len(),
            "these are logits of different texts or vocabularies"
        );
        let rows = self.values.chunks_exact(self.vocabulary);
        let places = rows.len() as f64;
        let (mut sum, mut same) = (0.0, 0.0);
        for (ours, theirs) in rows.zip(other.values.chunks_exact(self.vocabulary)) {
            let one = |(p, q): (&f32, &f32)| f64::from(*p).exp() * (f64::from(*p) - f64::from(*q));
            sum += ours.iter().zip(theirs).map(one).sum::<f64>();
            same += f64::from(u8::from(top(ours) == top(theirs)));
        }
        Ok(Divergence {
            mean: sum / places,
            same_top: same / places,
        })
    }
}

/// The likeliest token; the first of equals.
fn top(row: &[f32]) -> Option<usize> {
    let order = |a: &usize, b: &usize| row[*a].total_cmp(&row[*b]).then(b.cmp(a));
    (0..row.len()).max_by(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one place: the first of a chunk of three tokens' second half.
    fn file(probabilities: [f32; 3]) -> Vec<u8> {
        let logarithms = probabilities.map(f32::ln);
        let least = logarithms.into_iter().fold(0.0, f32::min);
        let largest = logarithms.into_iter().fold(f32::MIN, f32::max);
        let scale = (largest - least) / f32::from(u16::MAX);
        let mut file = MAGIC.to_vec();
        for number in [3_u32, 3, 1, 7, 8, 9] {
            file.extend(number.to_le_bytes());
        }
        file.extend(scale.to_le_bytes());
        file.extend(least.to_le_bytes());
        for one in logarithms {
            let step = if scale > 0.0 {
                (one - least) / scale
            } else {
                0.0
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and 65535"
            )]
            file.extend((step.round() as u16).to_le_bytes());
        }
        file.extend([0; 2]);
        file
    }

    #[test]
    fn two_distributions_are_as_far_apart_as_the_formula_says() {
        let a = Logits::parse(&file([0.5, 0.25, 0.25])).unwrap();
        let b = Logits::parse(&file([0.25, 0.5, 0.25])).unwrap();
        let itself = a.divergence(&a).unwrap();
        assert!(itself.mean.abs() < 1e-9);
        assert!((itself.same_top - 1.0).abs() < 1e-9);
        let apart = a.divergence(&b).unwrap();
        assert!((apart.mean - 0.25 * 2.0_f64.ln()).abs() < 1e-4, "{apart:?}");
        assert!(apart.same_top < 1e-9);
    }

    #[test]
    fn a_file_that_is_cut_off_or_another_one_is_seen() {
        let whole = file([0.5, 0.25, 0.25]);
        for length in [0, 5, 10, 21, whole.len() - 1] {
            assert!(Logits::parse(&whole[..length]).is_err(), "{length}");
        }
        let mut other = whole.clone();
        other[0] = b'-';
        assert!(Logits::parse(&other).is_err());
    }

    #[test]
    fn only_what_belongs_together_is_compared() {
        let a = Logits::parse(&file([0.5, 0.25, 0.25])).unwrap();
        let longer = Logits {
            vocabulary: a.vocabulary,
            values: a.values.repeat(2),
        };
        assert!(a.divergence(&longer).is_err());
    }
}
