// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of docs/matmul-figures.md: the share of the memory bandwidth that matmuls of few rows
//! reach.

use anyhow::Result;
use npu_matmul::plan::WeightPlan;
use npu_matmul::{Dtype, Plan, PlanOptions};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;
use crate::plans::{BOARDS, CLOCKS, FDS, board_heads};

/// Rows: one token for each of this number of sequences.
const ROWS: [usize; 4] = [2, 8, 16, 32];

/// Matrices of two models of a billion weights, by their published configurations: K and N.
const MATRICES: [(&str, usize, usize); 10] = [
    ("Llama-3.2-1B key, value", 2048, 512),
    ("Llama-3.2-1B query, attention output", 2048, 2048),
    ("Llama-3.2-1B gate, up", 2048, 8192),
    ("Llama-3.2-1B down", 8192, 2048),
    ("Llama-3.2-1B output", 2048, 128_256),
    ("Gemma-3-1B key, value", 1152, 256),
    ("Gemma-3-1B query", 1152, 1024),
    ("Gemma-3-1B attention output", 1024, 1152),
    ("Gemma-3-1B gate, up", 1152, 6912),
    ("Gemma-3-1B down", 6912, 1152),
];

/// Shares of the NPU's time, including the driver's.
pub(crate) fn on_npu() -> Result<String> {
    shares(|plan, options| plan.predict(&options.profile.machine).npu_ps)
}

/// Shares of the time of whole calls.
pub(crate) fn of_calls() -> Result<String> {
    shares(|plan, options| plan.call(options).call_ps)
}

/// For each matrix and board, the share of `taken_ps` that the memory needs for the operands and
/// the result.
fn shares(taken_ps: impl Fn(&Plan, &PlanOptions) -> u64) -> Result<String> {
    let mut rows = Vec::new();
    for (name, k, n) in MATRICES {
        for (dtype, dtype_name) in [(Dtype::Int8, "INT8"), (Dtype::Fp16, "FP16")] {
            let mib = (n * k * dtype.input_bits() / 8) as f64 / f64::from(1 << 20);
            let mut row = format!("{name} | {dtype_name} | {mib:.1} MiB");
            let boards = BOARDS.iter().flat_map(|board| CLOCKS.map(board));
            for options in boards {
                let weights = WeightPlan::new(dtype, n, k, FDS, &options)?;
                let mut cell = Vec::new();
                for m in ROWS {
                    let plan = Plan::new(&weights, m, &options)?;
                    let least = plan.predict(&options.profile.machine).memory_ps;
                    let share = seconds(least) / seconds(taken_ps(&plan, &options).max(1));
                    cell.push(format!("{:.0}", 100.0 * share));
                }
                row += &format!(" | {}", cell.join(" "));
            }
            rows.push(row);
        }
    }
    let heads = format!("matrix | precision | weights{}", board_heads());
    Ok(table(&heads, rows))
}
