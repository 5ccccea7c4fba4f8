// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the trace that the backend writes, and holds it against its table.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::stats::StatsTable;
use crate::paths;

/// Names the file to the backend.
pub(super) const VARIABLE: &str = "GGML_ROCKET_TRACE";

/// The file that a check has the backend write its trace to.
pub(super) fn path() -> PathBuf {
    paths::target().join("llama/trace.json")
}

/// That the trace in `path` tells of as many products and jobs as `stats`, and
/// of each kind of work.
pub(super) fn check(path: &Path, stats: &StatsTable<'_>) -> Result<()> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let events: Vec<Value> =
        serde_json::from_slice(&text).with_context(|| format!("parsing {}", path.display()))?;
    agrees(&events, stats).with_context(|| format!("the trace {}", path.display()))
}

fn agrees(events: &[Value], stats: &StatsTable<'_>) -> Result<()> {
    let of = |category: &'static str| events.iter().filter(move |e| e["cat"] == category);
    let products = stats.products()?;
    ensure!(
        of("product").count() as u64 == products,
        "has {} products, the table {products}",
        of("product").count()
    );
    for product in of("product") {
        let sizes = ["rows", "k", "n"].map(|size| product["args"][size].as_u64());
        ensure!(
            product["name"]
                .as_str()
                .is_some_and(|name| !name.is_empty())
                && product["dur"].as_f64().is_some_and(|time| time > 0.0)
                && product["args"]["precision"].is_string()
                && sizes.iter().all(|size| size.is_some_and(|size| size > 0)),
            "has the product {product}"
        );
    }
    let jobs = stats.count("jobs");
    for category in ["job", "wait", "unpack"] {
        let seen = of(category).count() as u64;
        ensure!(
            seen == jobs,
            "has {seen} times {category}, the table {jobs} jobs"
        );
    }
    for category in ["graph", "pack", "submit"] {
        let mut slices = of(category).filter(|e| e["ph"] == "X");
        ensure!(slices.next().is_some(), "has no {category}");
    }
    if stats.is_model() {
        // The ends of the arrows from SUBMIT to the job on its core. A job
        // whose outputs look as if it had not run is run again, and counted once.
        let modelled = of("submit").filter(|e| e["ph"] == "f").count() as u64;
        ensure!(
            modelled >= jobs,
            "has {modelled} jobs with modelled times, the table {jobs}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STATS: &str = "ROCKET statistics: software model: for testing\n  \
        products computed in fp16  1\n  products computed in int8  1\n  products failed  0\n  jobs  1\n";

    fn events() -> Vec<Value> {
        let args = json!({ "rows": 2, "k": 3, "n": 4, "precision": "fp16" });
        let product = json!({ "cat": "product", "name": "Qcur-0", "dur": 1.5, "args": args });
        let mut events = vec![product.clone(), product];
        for category in ["job", "wait", "unpack", "graph", "pack", "submit"] {
            events.push(json!({ "cat": category, "ph": "X" }));
        }
        events.push(json!({ "cat": "submit", "ph": "f" }));
        events
    }

    #[test]
    fn a_trace_tells_what_the_table_counts() {
        let stats = StatsTable::find(STATS).unwrap();
        agrees(&events(), &stats).unwrap();
        for missing in 0..events().len() {
            let mut less = events();
            less.remove(missing);
            assert!(agrees(&less, &stats).is_err(), "without {missing}");
        }
        let mut nameless = events();
        nameless[0]["name"] = json!("");
        assert!(agrees(&nameless, &stats).is_err());
    }
}
