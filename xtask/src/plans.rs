// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicted times of transformer matmuls: the table of README.md.

use anyhow::Result;
use npu_matmul::plan::WeightPlan;
use npu_matmul::profile::CostSide;
use npu_matmul::{Dtype, Plan, PlanOptions};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;

/// File descriptors: one for each core.
pub(crate) const FDS: usize = 3;

/// llama.cpp's default batch.
const ROWS: usize = 512;

/// Clocks, MHz: mainline's, and that of most published figures.
const CLOCKS: [u64; 2] = [200, 600];

/// Plan options of a board at a clock in MHz: default, and after calibration found all tiles and
/// all reuse of CBUF right.
const BOARDS: [fn(u64) -> PlanOptions; 2] = [
    |mhz| PlanOptions::uncalibrated(mhz * 1_000_000),
    |mhz| PlanOptions::calibrated(mhz * 1_000_000),
];

/// Matmuls of a layer by the models' published configurations: model and matrix, K and N.
const MATMULS: [(&str, usize, usize); 2] = [
    ("Llama-3.2-3B, gate, up", 3072, 8192),
    ("Llama-3.1-8B, gate, up", 4096, 14336),
];

/// The table of expected speeds in README.
pub(crate) fn expected() -> Result<String> {
    let mut rows = Vec::new();
    for (what, k, n) in MATMULS {
        for (dtype, name) in [(Dtype::Fp16, "FP16"), (Dtype::Int8, "INT8")] {
            let mut row = format!("{ROWS} x {k} x {n} ({what}) | {name}");
            for board in BOARDS {
                for clock in CLOCKS {
                    let [likely, upper] = call_ms(dtype, k, n, board(clock))?;
                    row += &format!(" | {likely:.1} ({upper:.1}) ms");
                }
            }
            rows.push(row);
        }
    }
    let heads = ["", ", calibrated"].map(|board| CLOCKS.map(|mhz| format!(" | {mhz} MHz{board}")));
    let heads = heads.concat().concat();
    Ok(table(&format!("modelled | precision{heads}"), rows))
}

/// The likely time of a whole call, and the least.
fn call_ms(dtype: Dtype, k: usize, n: usize, board: PlanOptions) -> Result<[f64; 2]> {
    let options = PlanOptions {
        batch_rows: ROWS,
        ..board
    };
    let weights = WeightPlan::new(dtype, n, k, FDS, &options)?;
    let plan = Plan::new(&weights, ROWS, &options)?;
    let ms = |side| seconds(plan.call(&options.on(side)).call_ps) * 1e3;
    Ok([CostSide::Likely, CostSide::Upper].map(ms))
}
