// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the table that the backend prints at exit.

use std::fmt;

use anyhow::{Context, Result, ensure};

/// First words of the table.
const TITLE: &str = "ROCKET0 statistics:";
/// First words of the rows with products by precision.
const PRODUCTS: &str = "products computed in";

/// The table.
#[derive(Debug)]
pub(super) struct Stats<'a>(&'a str);

impl fmt::Display for Stats<'_> {
    /// The table as it was printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl<'a> Stats<'a> {
    /// Finds it in what a program wrote to stderr.
    pub(super) fn find(stderr: &'a str) -> Result<Self> {
        let start = stderr
            .rfind(TITLE)
            .context("the backend printed no statistics: was it loaded?")?;
        Ok(Self(&stderr[start..]))
    }

    /// The device, as the table's title names it.
    pub(super) fn device(&self) -> &'a str {
        let line = self.0.lines().next().unwrap_or_default();
        line.strip_prefix(TITLE).unwrap_or_default().trim()
    }

    /// The count in the row `name`; zero if there is no such row.
    pub(super) fn count(&self, name: &str) -> u64 {
        let row = self
            .0
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        row.and_then(|rest| rest.split_whitespace().last()?.parse().ok())
            .unwrap_or(0)
    }

    /// The number of products in any precision, which must not be zero, with
    /// no product failed and at least one job behind them.
    pub(super) fn products(&self) -> Result<u64> {
        let rows = self.0.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix(PRODUCTS)?;
            rest.split_whitespace().last()?.parse::<u64>().ok()
        });
        self.sound(rows.sum(), "any precision")
    }

    /// The number of products in `precision`, which must not be zero, with no
    /// product failed and at least one job behind them.
    pub(super) fn offloaded(&self, precision: &str) -> Result<u64> {
        let products = self.count(&format!("{PRODUCTS} {precision}"));
        self.sound(products, precision)
    }

    fn sound(&self, products: u64, precision: &str) -> Result<u64> {
        let failed = self.count("products failed");
        ensure!(
            products > 0,
            "no product was computed in {precision}:\n{}",
            self.0
        );
        ensure!(failed == 0, "{failed} products failed:\n{}", self.0);
        ensure!(self.count("jobs") > 0, "no job was submitted:\n{}", self.0);
        Ok(products)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "noise\nETA ROCKET0 statistics: software model: for testing\n  \
        products computed in int8      232\n  products failed   0\n  jobs   7\n  (a note)\n";

    #[test]
    fn rows_are_read_by_name() {
        let stats = Stats::find(OUTPUT).unwrap();
        assert_eq!(stats.device(), "software model: for testing");
        assert_eq!(stats.offloaded("int8").unwrap(), 232);
        assert_eq!(stats.products().unwrap(), 232);
        assert!(stats.offloaded("fp16").is_err());
        assert_eq!(stats.count("nonsense"), 0);
        assert!(Stats::find("noise").is_err());
    }
}
