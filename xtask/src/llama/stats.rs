// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the table that the backend prints at exit.

use std::fmt;

use anyhow::{Context, Result, ensure};

/// First words of the table.
const TITLE: &str = "ROCKET statistics:";
/// First words of the rows with products by precision.
const PRODUCTS: &str = "products computed in";

/// The name of the backend's device in ggml's lists.
pub(super) fn name_of(is_model: bool) -> &'static str {
    match is_model {
        true => "ROCKET-MODEL0",
        false => "ROCKET0",
    }
}

/// The statistics that the backend prints when a program ends: a name and a count a
/// line.
#[derive(Debug)]
pub(super) struct StatsTable<'a>(&'a str);

impl fmt::Display for StatsTable<'_> {
    /// The table as it was printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl<'a> StatsTable<'a> {
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

    /// Whether it is the software model.
    pub(super) fn is_model(&self) -> bool {
        self.device().starts_with("software model")
    }

    /// The device's name in ggml's lists, which follows from what it is.
    pub(super) fn name(&self) -> &'static str {
        name_of(self.is_model())
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

    /// The milliseconds in the row `name`; `None` if there is no such row, or
    /// it has no time.
    pub(super) fn milliseconds(&self, name: &str) -> Option<f64> {
        let row = self
            .0
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        let time = row?.split_whitespace().last()?.parse::<f64>().ok()?;
        (time.is_finite() && time >= 0.0).then_some(time)
    }

    /// That there was time in each part of the work: what a device did is
    /// measured on a real one, and modelled anyway.
    pub(super) fn has_times(&self) -> Result<()> {
        let mut rows = vec![
            "thread-ms packing weights (measured)",
            "thread-ms packing activations (measured)",
            "thread-ms unpacking outputs (measured)",
            "NPU ms, product by product (modelled)",
        ];
        let measured = [
            "thread-ms waiting for jobs (measured)",
            "NPU ms, with jobs submitted (measured)",
        ];
        if self.is_model() {
            for row in measured {
                ensure!(
                    self.milliseconds(row).is_none(),
                    "{row} of a device that is no NPU:\n{}",
                    self.0
                );
            }
        } else {
            rows.extend(measured);
        }
        for row in rows {
            ensure!(
                self.milliseconds(row).is_some_and(|time| time > 0.0),
                "no {row}:\n{}",
                self.0
            );
        }
        Ok(())
    }

    /// The number of products in any precision, which must not be zero, with
    /// no product failed and at least one job behind them.
    pub(super) fn products(&self) -> Result<u64> {
        let products = self.by_precision().map(|(_, products)| products).sum();
        self.sound(products, "any precision")
    }

    /// The precisions that products were computed in.
    pub(super) fn precisions(&self) -> Vec<&'a str> {
        let used = self.by_precision().filter(|(_, products)| *products > 0);
        used.map(|(precision, _)| precision).collect()
    }

    fn by_precision(&self) -> impl Iterator<Item = (&'a str, u64)> {
        self.0.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix(PRODUCTS)?;
            let (precision, products) = rest.trim().split_once(' ')?;
            Some((precision, products.trim().parse().ok()?))
        })
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

    const OUTPUT: &str = "noise\nETA ROCKET statistics: software model: for testing\n  \
        products computed in int8      232\n  products failed   0\n  jobs   7\n  \
        thread-ms packing weights (measured) 1.5\n  \
        thread-ms packing activations (measured) 0.001\n  \
        thread-ms unpacking outputs (measured) 2.000\n  \
        NPU ms, product by product (modelled) 12.125\n  (a note)\n";

    #[test]
    fn rows_are_read_by_name() {
        let stats = StatsTable::find(OUTPUT).unwrap();
        assert_eq!(stats.device(), "software model: for testing");
        assert_eq!(stats.offloaded("int8").unwrap(), 232);
        assert_eq!(stats.products().unwrap(), 232);
        assert_eq!(stats.precisions(), ["int8"]);
        assert!(stats.offloaded("fp16").is_err());
        assert_eq!(stats.count("nonsense"), 0);
        assert!(StatsTable::find("noise").is_err());
        let modelled = "NPU ms, product by product (modelled)";
        assert_eq!(stats.milliseconds(modelled), Some(12.125));
        assert_eq!(stats.milliseconds("nonsense"), None);
        assert!(stats.has_times().is_ok());
    }

    #[test]
    fn each_part_has_its_time() {
        for (from, to) in [
            ("1.5", "0.000"),
            ("thread-ms unpacking outputs (measured) 2.000", ""),
            ("12.125", "NaN"),
            ("software model: for testing", "RK3588 NPU"),
            ("(a note)", "thread-ms waiting for jobs (measured) 1.0"),
        ] {
            let bad = OUTPUT.replacen(from, to, 1);
            assert_ne!(bad, OUTPUT);
            assert!(
                StatsTable::find(&bad).unwrap().has_times().is_err(),
                "{bad}"
            );
        }
    }
}
