// SPDX-License-Identifier: MIT OR Apache-2.0
//! What users are told to expect: the largest product of two models, of README and
//! docs/speed.md.

use std::fmt::Write;

use anyhow::Result;
use rknpu_regcmd::timing::seconds;

use super::products::PRODUCTS;
use super::{AIMS, BATCH, OPERANDS, chosen};

/// Name of the section of both pages that the table stands in.
pub(crate) const SECTION: &str = "expected";

/// The pages with the table.
pub(crate) const PAGES: [&str; 2] = ["README.md", "docs/speed.md"];

/// The product that is told of, and of which models.
const WHAT: &str = "gate, up";
const MODELS: [&str; 2] = ["Llama-3.2-3B", "Llama-3.1-8B"];
/// In which precisions, as users know them.
const PRECISIONS: [(&str, &str); 2] = [("fp16", "FP16"), ("int8", "INT8")];

/// The table, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let mut table = String::from("| modelled | precision |");
    for (clock, _) in AIMS {
        write!(table, " {clock} MHz |")?;
    }
    table.push_str("\n|---|---|");
    table.push_str(&"---|".repeat(AIMS.len()));
    table.push('\n');
    let told = |model| {
        PRODUCTS
            .iter()
            .find(move |one| one.model == model && one.what == WHAT)
    };
    for product in MODELS.into_iter().filter_map(told) {
        for (name, shown) in PRECISIONS {
            let operands = OPERANDS.iter().find(|operands| operands.name == name);
            let (model, k, n) = (product.model, product.k, product.n);
            write!(table, "| {BATCH} x {k} x {n} ({model}, {WHAT}) | {shown} |")?;
            for (clock, _) in AIMS {
                let Some(operands) = operands else { continue };
                let call = chosen(operands, product, BATCH, clock)?.best.call;
                write!(table, " {:.1} ms |", seconds(call.call_ps) * 1e3)?;
            }
            table.push('\n');
        }
    }
    Ok(table)
}
