// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: the stock program lists our device, and only with our backend.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "list-devices";
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn check(stock: &Stock) -> Result<CheckVerdict> {
    let list = |backend| {
        let arguments = ["--list-devices"];
        let output = stock.run("llama-completion", backend, &arguments, LIMIT)?;
        output.checked("llama-completion --list-devices")
    };
    let without = list(Backend::Without)?;
    ensure!(
        !without.text().contains("ROCKET"),
        "our device is listed without our backend"
    );
    let with = list(Backend::With)?;
    let stats = StatsTable::find(&with.stderr)?;
    let (name, device) = (stats.name(), stats.device());
    let text = with.text();
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    let (_, line) = lines
        .find(|(listed, _)| *listed == name)
        .with_context(|| format!("{name} is not listed: {}", with.tail()))?;
    ensure!(
        line.starts_with(device),
        "listed as {line:?}, but the statistics speak of {device:?}"
    );
    Ok(CheckVerdict::Pass(format!("{name}: {device}")))
}
