// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the CPU alone writes after a prompt, and whether a text is that.
//!
//! Greedy decoding turns logits into text, and two logits that are nearly
//! equal can change places through a rounding. So a differing token is
//! accepted where the CPU's own logits of the two tokens are less than
//! [`TIE_NATS`] apart, and the rest of the text must then be what the CPU writes
//! after that token. Texts carry no logits, so the stock llama-server, without
//! our backend, is asked: it takes tokens as its prompt and gives the log
//! probabilities of the best candidates at each step, whose differences are
//! those of the logits.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::attempts;
use super::server;
use super::server::{LlamaServer, TokenChoice};
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use crate::process::{self, CommandOutput};

const LIMIT: Duration = Duration::from_secs(120);
/// Logits nearer to each other than this may change places.
pub(super) const TIE_NATS: f64 = 1e-3;
/// How many ties in one text are followed up.
const MOST_TIES: usize = 4;

/// What the CPU writes after one prompt with one model.
#[derive(Debug)]
pub(super) struct ReferenceText<'a> {
    stock: &'a Stock,
    server: LlamaServer,
    model: String,
    prompt: String,
    tokens: Vec<u32>,
    steps: Vec<TokenChoice>,
}

/// How far a text is the CPU's, and which ties excuse the rest.
#[derive(Debug)]
pub(super) struct Agreement {
    /// How far apart the CPU's logits are at each tie that explains a
    /// difference.
    ties: Vec<f64>,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ties.is_empty() {
            return f.write_str("same text");
        }
        let gaps: Vec<String> = self.ties.iter().map(|gap| format!("{gap:.6}")).collect();
        write!(f, "same text but for ties of {}", gaps.join(", "))
    }
}

impl<'a> ReferenceText<'a> {
    /// Has the CPU write `count` tokens after `prompt`.
    pub(super) fn new(stock: &'a Stock, model: &Path, prompt: &str, count: usize) -> Result<Self> {
        let model = model.to_string_lossy().into_owned();
        let server = LlamaServer::start(stock, &model, THREADS)?;
        let tokens = server.tokenize(prompt)?;
        let steps = server.complete(&tokens, count)?;
        Ok(Self {
            stock,
            server,
            model,
            prompt: prompt.to_owned(),
            tokens,
            steps,
        })
    }

    /// The tokens of the prompt.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The text that the CPU wrote.
    pub(super) fn text(&self) -> Vec<u8> {
        server::text(&self.steps)
    }

    /// The smallest lead of a best token, as logits.
    pub(super) fn smallest_gap(&self) -> f64 {
        self.steps
            .iter()
            .map(TokenChoice::gap)
            .fold(f64::MAX, f64::min)
    }

    /// Whether `text` is what the CPU writes.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn judge(&self, text: &[u8]) -> Result<Agreement> {
        let cpu = |prefix: &[u32], count| {
            let tokens = [&self.tokens, prefix].concat();
            self.server.complete(&tokens, count)
        };
        let ties = explain(&cpu, text, self.steps.len())?.with_context(|| {
            format!(
                "the texts differ, and not by ties. CPU: {:?}; here: {:?}",
                String::from_utf8_lossy(&self.text()),
                String::from_utf8_lossy(text)
            )
        })?;
        Ok(Agreement { ties })
    }

    /// What llama-completion is told, but for the model.
    pub(super) fn options(prompt: &str, count: usize) -> Vec<String> {
        let count = count.to_string();
        #[rustfmt::skip]
        let options = [
            "-p", prompt, "-n", &*count, "--temp", "0", "--ignore-eos", "-no-cnv",
            "--no-display-prompt", "-t", THREADS, "-tb", THREADS,
        ];
        options.map(str::to_owned).to_vec()
    }

    /// Has llama-completion write as many tokens after the prompt, with more
    /// arguments and variables, once.
    pub(super) fn run(
        &self,
        backend: Backend,
        arguments: &[&str],
        set: &[(&str, &str)],
    ) -> Result<CommandOutput> {
        let mut command = self.stock.command("llama-completion", backend)?;
        command.args(["-m", &*self.model]);
        command.args(Self::options(&self.prompt, self.steps.len()));
        command.args(arguments).envs(set.iter().copied());
        process::run(command, LIMIT).context("llama-completion")
    }

    /// As [`ReferenceText::run`], again where it lost the end of its text, or with
    /// our backend the table.
    pub(super) fn complete(
        &self,
        backend: Backend,
        arguments: &[&str],
        set: &[(&str, &str)],
    ) -> Result<CommandOutput> {
        let expected = self.text();
        let run = || {
            let output = self.run(backend, arguments, set)?;
            output.checked("llama-completion")
        };
        attempts::until_whole("llama-completion", run, |output| {
            let text = generated(output);
            // The CPU's text is known in full, so a lost tail shows. Any other
            // text is the result.
            let cut = text.len() < expected.len() && expected.starts_with(text);
            let untold = backend == Backend::With && StatsTable::find(&output.stderr).is_err();
            !cut && !untold
        })
    }

    /// As [`ReferenceText::complete`] with our backend; the text must be the CPU's.
    pub(super) fn complete_alike(
        &self,
        arguments: &[&str],
        set: &[(&str, &str)],
    ) -> Result<(CommandOutput, Agreement)> {
        let output = self.complete(Backend::With, arguments, set)?;
        let agreement = self.judge(generated(&output))?;
        Ok((output, agreement))
    }

    /// The stock llama-completion, without our backend, writes what
    /// llama-server does.
    pub(super) fn confirm(&self) -> Result<()> {
        let output = self.complete(Backend::Without, &[], &[])?;
        ensure!(
            generated(&output) == self.text(),
            "llama-completion wrote {:?}, llama-server {:?}, both without our backend",
            String::from_utf8_lossy(generated(&output)),
            String::from_utf8_lossy(&self.text())
        );
        Ok(())
    }
}

/// The text of llama-completion, without the newlines that it adds. The models
/// write no newlines themselves.
pub(super) fn generated(output: &CommandOutput) -> &[u8] {
    let end = output.stdout.iter().rposition(|byte| *byte != b'\n');
    &output.stdout[..end.map_or(0, |last| last + 1)]
}

/// The CPU's continuation of a prompt by some tokens: the given number of
/// steps.
type Continue<'a> = dyn Fn(&[u32], usize) -> Result<Vec<TokenChoice>> + 'a;

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
        for candidate in steps[index].rivals(TIE_NATS) {
            let Some(rest) = rests[index].strip_prefix(&*candidate.bytes) else {
                continue;
            };
            let taken = steps[..index]
                .iter()
                .map(TokenChoice::id)
                .chain([candidate.id]);
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
    use crate::llama::server::TokenCandidate;

    /// A language model of three rules: writes a, b, c, a, b, c ...; after an
    /// x, writes only y; and at every fourth token x is a near tie.
    fn cpu(prefix: &[u32], count: usize) -> Result<Vec<TokenChoice>> {
        let mut tokens = prefix.to_vec();
        let mut steps = Vec::new();
        for _ in 0..count {
            let candidate = |letter: u8, gap| TokenCandidate {
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
            steps.push(TokenChoice::new(vec![candidate(best, 0.0), candidate(b'x', gap)]).unwrap());
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
