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
        !without.text().contains("ROCKET0"),
        "ROCKET0 is listed without our backend"
    );
    let with = list(Backend::With)?;
    let line = with
        .text()
        .lines()
        .find_map(|line| line.trim().strip_prefix("ROCKET0: ").map(str::to_owned))
        .with_context(|| format!("ROCKET0 is not listed: {}", with.tail()))?;
    let device = StatsTable::find(&with.stderr)?.device().to_owned();
    ensure!(
        line.starts_with(&device),
        "listed as {line:?}, but the statistics speak of {device:?}"
    );
    Ok(CheckVerdict::Pass(format!("ROCKET0: {device}")))
}
