// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: `-sm tensor`, which splits tensors over several devices, fails with the
//! backend as it does without: no device of ours can hold a part of a tensor.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::attempts::until_whole;
use super::model::Workshop;
use super::stock::{Backend, Stock, THREADS};
use crate::process;
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "tensor-split";
const LIMIT: Duration = Duration::from_secs(60);
/// What llama.cpp says when there is nothing to split over.
const REFUSAL: &str = "LLAMA_SPLIT_MODE_TENSOR needs";

pub(super) fn check(stock: &Stock, workshop: &Workshop) -> Result<CheckVerdict> {
    let model = workshop.tiny_f16(1)?;
    let model = model.to_string_lossy();
    let run = |backend| {
        let attempt = || {
            let mut command = stock.command("llama-completion", backend)?;
            command
                .args(["-m", &*model, "-p", "Hello", "-n", "1", "-no-cnv"])
                .args(["-sm", "tensor", "-t", THREADS]);
            process::run(command, LIMIT)
        };
        // Whoever succeeds has nothing to say of it.
        let output = until_whole("llama-completion", attempt, |output| {
            output.status.success() || output.stderr.contains(REFUSAL)
        })?;
        let line = output.stderr.lines().find(|line| line.contains(REFUSAL));
        let line = line.with_context(|| {
            format!(
                "{backend:?} ended with {}: {}",
                output.status,
                output.tail()
            )
        })?;
        let (_, line) = line.split_once(": ").unwrap_or_default();
        Ok::<_, anyhow::Error>((output.status, line.to_owned()))
    };
    let (without, with) = (run(Backend::Without)?, run(Backend::With)?);
    ensure!(
        with == without,
        "with the backend {with:?}, without {without:?}"
    );
    let (status, line) = with;
    Ok(CheckVerdict::Pass(format!(
        "{status} on both sides: {line}"
    )))
}
