// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: a job that the kernel kills in the middle of a prompt is told, and
//! nothing is made of its result.
//!
//! On the software model with one core at 1 MHz the jobs of the third kind of product
//! of the tiny model, on a long prompt, take longer than the 200 ms that its driver
//! gives a job, and those before it do not.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::attempts::until_whole;
use super::model::Workshop;
use super::server::LlamaServer;
use super::stats::StatsTable;
use super::stock::{Backend, Stock, THREADS};
use crate::process;
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "killed-job";
const LIMIT: Duration = Duration::from_secs(120);

/// The device on which jobs take so long that the driver kills them.
const SLOW: (&str, &str) = ("GGML_ROCKET_DEVICE", "model:clock=1,cores=1,job-limit=200");
/// A prompt of 1842 tokens: jobs of 256 x 256 weights take 135 ms at that clock, and of
/// 256 x 768 325 ms.
const SENTENCE: &str = "Once upon a time there was a chip. ";
const SENTENCES: usize = 80;
/// Tokens of a batch: the whole prompt fits in one.
const BATCH: &str = "2048";
/// The first product that takes too long.
const KILLED: &str = "computing ffn_gate-0 ";
/// A prompt that the CPU computes alone.
const SHORT: &str = "Hello";
const STEPS: usize = 4;

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let model = workshop.tiny_f16(1)?;
    let model = model.to_string_lossy();
    let line = completion_ends(stock, &model)?;
    server_goes_on(stock, &model)?;
    Ok(CheckVerdict::Pass(format!(
        "llama-completion ends with an error and no text, llama-server answers 500 and then the \
         next request; the log says: {line}"
    )))
}

/// The prompt on which a job is killed.
fn prompt() -> String {
    SENTENCE.repeat(SENTENCES)
}

/// llama-completion must stop; returns the line that says why.
fn completion_ends(stock: &Stock, model: &str) -> Result<String> {
    let run = || {
        let mut command = stock.command("llama-completion", Backend::With)?;
        command
            .args(["-m", model, "-p", &prompt(), "-n", "4", "--temp", "0"])
            .args(["-no-cnv", "--no-display-prompt", "-t", THREADS])
            .args(["-c", BATCH, "-b", BATCH, "-ub", BATCH])
            .env(SLOW.0, SLOW.1);
        process::run(command, LIMIT)
    };
    // The statistics are the last that is logged.
    let output = until_whole("llama-completion", run, |output| {
        StatsTable::find(&output.stderr).is_ok()
    })?;
    ensure!(
        output.status.code() == Some(1),
        "llama-completion ended with {}: {}",
        output.status,
        output.tail()
    );
    let text = output.text();
    ensure!(
        text.trim().is_empty(),
        "it wrote a text all the same: {text:?}"
    );
    let said: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.contains("ROCKET: ") && line.contains("failed"))
        .collect();
    ensure!(
        said.len() == 1
            && said[0].contains(KILLED)
            && said[0].contains("the driver killed the job"),
        "expected one line about {KILLED:?}, got {said:?}"
    );
    let stats = StatsTable::find(&output.stderr)?;
    let (computed, failed) = (
        stats.count("products computed in fp16"),
        stats.count("products failed"),
    );
    ensure!(
        computed > 0 && failed == 1,
        "{computed} products computed and {failed} failed; it should fail in the middle, once"
    );
    let (_, line) = said[0].split_once("ROCKET: ").context("no name")?;
    Ok(line.to_owned())
}

/// llama-server must refuse that prompt and serve the next.
fn server_goes_on(stock: &Stock, model: &str) -> Result<()> {
    let mut command = stock.command("llama-server", Backend::With)?;
    command
        .args(["-b", BATCH, "-ub", BATCH])
        .env(SLOW.0, SLOW.1);
    let server = LlamaServer::launch(command, model, THREADS, 1)?;
    let cpu = LlamaServer::start(stock, model, THREADS)?;
    let short = cpu.tokenize(SHORT)?;
    let expected = cpu.complete(&short, STEPS)?;
    let long = server.tokenize(&prompt())?;
    // Twice: the device is well after a kill.
    for _ in 0..2 {
        let Err(error) = server.complete(&long, STEPS) else {
            bail!("llama-server completed a prompt of which a job was killed");
        };
        ensure!(
            format!("{error:#}").contains("status 500"),
            "llama-server should have answered with an error: {error:#}"
        );
        let steps = server
            .complete(&short, STEPS)
            .context("the request after the one that failed")?;
        ensure!(
            steps
                .iter()
                .map(|step| step.id())
                .eq(expected.iter().map(|step| step.id())),
            "after a failure a short prompt is not completed as by the CPU"
        );
    }
    Ok(())
}
