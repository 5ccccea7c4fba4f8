// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it takes to add up the K tiles of INT8 products on the NPU instead of the
//! CPU.

use std::fmt::Write;

use anyhow::{Context, Result};
use npu_matmul::plan::{Accumulate, Candidate, Conditions, candidates, cheapest};
use npu_matmul::{Dtype, PlanOptions};
use rknpu_regcmd::timing::{Machine, seconds};

use super::products::{FDS, LayerProduct, PRODUCTS};

/// Rows of A in each product of the table.
const ROWS: usize = 512;

/// Clock of the NPU that times are modelled for, MHz.
const CLOCK: u64 = 600;

const MIB: f64 = (1 << 20) as f64;

/// The table, as Markdown: a line for each size whose K the cheapest plan cuts.
pub(super) fn markdown() -> Result<String> {
    let mut page = format!(
        "\n### K tiles of int8 added up on the NPU\n\n\
         M {ROWS} at {CLOCK} MHz. Each side's own cheapest plan: K tiles, modelled device time \
         and CPU time for sums in ms, MiB that the CPU reads.\n\n\
         | K | N | tiles, CPU adds | device | sums | read | tiles, NPU adds | device | sums | \
         read |\n|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for LayerProduct { k, n, .. } in &PRODUCTS {
        let [cpu, npu] = [Accumulate::Cpu, Accumulate::Npu].map(|who| chosen(*n, *k, who));
        let (cpu, npu) = (cpu?, npu?);
        if cpu.weights.k_tile_count() == 1 {
            continue;
        }
        write!(page, "| {k} | {n} |")?;
        for side in [cpu, npu] {
            write!(
                page,
                " {} | {:.2} | {:.2} | {:.1} |",
                side.weights.k_tile_count(),
                seconds(side.prediction.npu_ps) * 1e3,
                seconds(side.sum_ps) * 1e3,
                side.prediction.read_bytes as f64 / MIB
            )?;
        }
        page.push('\n');
    }
    Ok(page)
}

fn chosen(n: usize, k: usize, accumulate: Accumulate) -> Result<Candidate> {
    let options = PlanOptions {
        accumulate,
        conditions: Conditions {
            machine: Machine::RK3588.at_clock(CLOCK * 1_000_000),
            rows: ROWS,
            ..Conditions::default()
        },
        ..PlanOptions::default()
    };
    cheapest(candidates(Dtype::Int8, n, k, FDS, &options)?)
        .with_context(|| format!("no plan for K {k} N {n}"))
}
