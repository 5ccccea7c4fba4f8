// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of docs/matmul-figures.md: the share of the memory bandwidth that matmuls of few rows
//! reach.

use anyhow::Result;
use npu_matmul::plan::WeightPlan;
use npu_matmul::predict::{call_together, npu_ps_together};
use npu_matmul::{Dtype, Plan, PlanOptions};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;
use crate::plans::{BOARDS, CLOCKS, FDS, board_heads};

/// Rows: one token for each of this number of sequences.
const ROWS: [usize; 4] = [2, 8, 16, 32];

/// Matrices of the same activations, which llama.cpp computes together.
struct Together {
    names: &'static str,
    k: usize,
    /// Columns of each.
    n: &'static [usize],
}

impl Together {
    const fn new(names: &'static str, k: usize, n: &'static [usize]) -> Self {
        Self { names, k, n }
    }
}

/// The matrices of a layer of two models of a billion weights, by their published configurations.
const LAYERS: [(&str, [Together; 4]); 2] = [
    (
        "Llama-3.2-1B",
        [
            Together::new("query, key, value", 2048, &[2048, 512, 512]),
            Together::new("attention output", 2048, &[2048]),
            Together::new("gate, up", 2048, &[8192, 8192]),
            Together::new("down", 8192, &[2048]),
        ],
    ),
    (
        "Gemma-3-1B",
        [
            Together::new("query, key, value", 1152, &[1024, 256, 256]),
            Together::new("attention output", 1024, &[1152]),
            Together::new("gate, up", 1152, &[6912, 6912]),
            Together::new("down", 6912, &[1152]),
        ],
    ),
];

/// Shares of the NPU's time, including the driver's.
pub(crate) fn on_npu() -> Result<String> {
    shares(npu_ps_together)
}

/// Shares of the time of whole calls.
pub(crate) fn of_calls() -> Result<String> {
    shares(|plans, options| call_together(plans, options).call_ps)
}

/// For each row of the table and each board, the share of `taken_ps` that the memory needs for the
/// operands and the results.
fn shares(taken_ps: impl Fn(&[&Plan], &PlanOptions) -> u64) -> Result<String> {
    let mut rows = Vec::new();
    for (model, layer) in &LAYERS {
        let each = layer
            .iter()
            .map(|one| (one.names, std::slice::from_ref(one)));
        for (names, matrices) in each.chain([("all of a layer", &layer[..])]) {
            for (dtype, dtype_name) in [(Dtype::Int8, "INT8"), (Dtype::Fp16, "FP16")] {
                let weights = matrices
                    .iter()
                    .map(|one| one.k * one.n.iter().sum::<usize>());
                let bytes = weights.sum::<usize>() * dtype.input_bits() / 8;
                let mib = bytes as f64 / f64::from(1 << 20);
                let mut row = format!("{model} {names} | {dtype_name} | {mib:.1} MiB");
                let boards = BOARDS.iter().flat_map(|board| CLOCKS.map(board));
                for options in boards {
                    let share = |m| share(matrices, dtype, m, &options, &taken_ps);
                    let cell = ROWS.map(share).into_iter().collect::<Result<Vec<_>>>()?;
                    row += &format!(" | {}", cell.join(" "));
                }
                rows.push(row);
            }
        }
    }
    let heads = format!("matrices | precision | weights{}", board_heads());
    Ok(table(&heads, rows))
}

/// The share of the time of `m` rows, in percent.
fn share(
    matrices: &[Together],
    dtype: Dtype,
    m: usize,
    options: &PlanOptions,
    taken_ps: impl Fn(&[&Plan], &PlanOptions) -> u64,
) -> Result<String> {
    let (mut least, mut taken) = (0.0, 0.0);
    for Together { k, n, .. } in matrices {
        let plan = |n| Plan::new(&WeightPlan::new(dtype, n, *k, FDS, options)?, m, options);
        let whole = plan(n.iter().sum())?;
        least += seconds(whole.predict(&options.profile.machine).memory_ps);
        let plans = n.iter().map(|&n| plan(n)).collect::<Result<Vec<_>, _>>()?;
        let plans: Vec<_> = plans.iter().collect();
        taken += seconds(taken_ps(&plans, options));
    }
    Ok(format!("{:.0}", 100.0 * least / taken))
}
