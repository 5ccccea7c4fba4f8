// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layers of few rows: sequences that are decoded together, drafts, best of N. What
//! bounds them are the bytes of the weights, and each call has costs of its own.

use std::fmt::Write;

use anyhow::Result;
use npu_matmul::plan::{WeightPlan, batch_call};
use npu_matmul::{Dtype, Plan};
use rknpu_regcmd::timing::seconds;

use super::products::{FDS, LAYERS, Layer};
use super::{AIMS, options};

/// Rows of a call.
const ROWS: [usize; 5] = [2, 4, 8, 16, 32];

/// The precisions that the table is about.
const DTYPES: [Dtype; 2] = [Dtype::Int8, Dtype::Fp16];

/// The table, as Markdown.
pub(super) fn markdown() -> Result<String> {
    let mut page = String::from(
        "\n### Layers of few rows\n\n\
         The calls of a layer one after the other, over the bytes of its matrices at what \
         three cores move: each product by itself, then those of the same activations as \
         a batch.\n\n| operands | layer | MHz |",
    );
    for rows in ROWS {
        write!(page, " M {rows} | batched |")?;
    }
    page.push_str("\n|---|---|---|");
    page.push_str(&"---|---|".repeat(ROWS.len()));
    page.push('\n');
    for dtype in DTYPES {
        for layer in &LAYERS {
            for (clock, _) in AIMS {
                write!(page, "| {dtype} | {} | {clock} |", layer.model)?;
                for rows in ROWS {
                    let [alone, batched] = over_bytes(layer, dtype, rows, clock)?;
                    write!(page, " {alone:.2} | {batched:.2} |")?;
                }
                page.push('\n');
            }
        }
    }
    Ok(page)
}

/// What a layer's calls take over its bytes: by themselves, and batched.
fn over_bytes(layer: &Layer, dtype: Dtype, rows: usize, clock_mhz: u64) -> Result<[f64; 2]> {
    let options = options(rows, clock_mhz);
    let machine = &options.profile.machine;
    let (mut bytes, mut alone_ps, mut batched_ps) = (0, 0, 0);
    for batch in &layer.batches {
        let mut plans = Vec::new();
        for &(k, n) in *batch {
            let weights = WeightPlan::new(dtype, n, k, FDS, &options)?;
            let plan = Plan::new(&weights, rows, &options)?;
            alone_ps += plan.call(&options).call_ps;
            bytes += (rows + n) * k * dtype.input_bits() / 8;
            bytes += rows * n * plan.ty.out_bytes() as usize;
            plans.push(plan);
        }
        batched_ps += batch_call(&plans, &options).call_ps;
    }
    let each = machine.dram.rate(machine.clock_hz, FDS as u64);
    let least = bytes as f64 / (FDS as u64 * each) as f64;
    Ok([alone_ps, batched_ps].map(|ps| seconds(ps) / least))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The aim for sequences that are decoded together.
    #[test]
    fn eight_rows_of_a_small_layer_take_little_more_than_its_bytes() {
        let [alone, batched] = over_bytes(&LAYERS[0], Dtype::Int8, 8, 600).unwrap();
        assert!(batched < alone && batched <= 1.25, "{alone} {batched}");
    }
}
