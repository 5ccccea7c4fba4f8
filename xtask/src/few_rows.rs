// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of docs/matmul-figures.md: the share of the memory bandwidth that matmuls of few rows
//! reach.

use anyhow::{Context, Result};
use npu_matmul::plan::WeightPlan;
use npu_matmul::predict::{call_together, npu_ps_together};
use npu_matmul::{Dtype, Plan, PlanOptions};
use npu_offload::{LayerPart, ModelShape, NumberFormat};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;
use crate::plans::{BOARDS, CLOCKS, FDS, board_heads};

/// Rows: one token for each of this number of sequences.
const ROWS: [usize; 4] = [2, 8, 16, 32];

/// Models of a billion weights.
const MODELS: [ModelShape; 2] = [ModelShape::LLAMA32_1B, ModelShape::GEMMA3_1B];

/// The matrices of a layer, in the order of [`layer`].
const NAMES: [&str; 4] = ["query, key, value", "attention output", "gate, up", "down"];

/// Matrices of the same activations, which llama.cpp computes together.
#[derive(Clone, Debug, PartialEq)]
struct Together {
    part: LayerPart,
    k: usize,
    /// Columns of each.
    n: Vec<usize>,
}

/// The matrices of a layer.
fn layer(shape: &ModelShape) -> Result<Vec<Together>> {
    // The sizes are the same in each format.
    let format = NumberFormat::named("F16").context("F16 is a format")?;
    let mut layer: Vec<Together> = Vec::new();
    for weights in shape.weights(format) {
        let [n, k] = weights.size;
        let each = std::iter::repeat_n(n, weights.count / shape.layers);
        match layer.last_mut() {
            _ if weights.is_output => {}
            Some(last) if last.part == weights.part && last.part != LayerPart::Other => {
                last.n.extend(each);
            }
            _ => layer.push(Together {
                part: weights.part,
                k,
                n: each.collect(),
            }),
        }
    }
    Ok(layer)
}

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
    for shape in MODELS {
        let layer = layer(&shape)?;
        let each = NAMES.into_iter().zip(layer.chunks(1));
        for (names, matrices) in each.chain([("all of a layer", &layer[..])]) {
            for (dtype, dtype_name) in [(Dtype::Int8, "INT8"), (Dtype::Fp16, "FP16")] {
                let weights = matrices
                    .iter()
                    .map(|one| one.k * one.n.iter().sum::<usize>());
                let bytes = weights.sum::<usize>() * dtype.input_bits() / 8;
                let mib = bytes as f64 / f64::from(1 << 20);
                let mut row = format!("{} {names} | {dtype_name} | {mib:.1} MiB", shape.name);
                let boards = BOARDS.iter().flat_map(|board| CLOCKS.map(board));
                for options in boards {
                    let share = |m| {
                        let share = share(matrices, dtype, m, &options, &taken_ps)?;
                        Ok(format!("{:.0}", 100.0 * share))
                    };
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

/// The share of the time of `m` rows.
fn share(
    matrices: &[Together],
    dtype: Dtype,
    m: usize,
    options: &PlanOptions,
    taken_ps: impl Fn(&[&Plan], &PlanOptions) -> u64,
) -> Result<f64> {
    let (mut least, mut taken) = (0.0, 0.0);
    for Together { k, n, .. } in matrices {
        let plan = |n| Plan::new(&WeightPlan::new(dtype, n, *k, FDS, options)?, m, options);
        let whole = plan(n.iter().sum())?;
        least += seconds(whole.predict(&options.profile.machine).memory_ps);
        let plans = n.iter().map(|&n| plan(n)).collect::<Result<Vec<_>, _>>()?;
        let plans: Vec<_> = plans.iter().collect();
        taken += seconds(taken_ps(&plans, options));
    }
    Ok(least / taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_matrices_for_all_names() {
        for shape in MODELS {
            let layer = layer(&shape).unwrap();
            assert_eq!(layer.len(), NAMES.len(), "{}", shape.name);
            let columns: Vec<_> = layer.iter().map(|one| one.n.len()).collect();
            assert_eq!(columns, [3, 1, 2, 1], "{}", shape.name);
        }
    }

    /// The matrices of a layer, as llama.cpp computes them, also those too small to reach it alone.
    #[test]
    fn layers_reach_the_bandwidth() {
        for (shape, clock) in MODELS
            .into_iter()
            .flat_map(|shape| [200, 600].map(|megahertz| (shape, megahertz * 1_000_000)))
        {
            let (layer, options) = (layer(&shape).unwrap(), PlanOptions::calibrated(clock));
            for (dtype, rows) in [Dtype::Int8, Dtype::Fp16]
                .into_iter()
                .flat_map(|dtype| ROWS.map(|rows| (dtype, rows)))
            {
                let share = share(&layer, dtype, rows, &options, npu_ps_together).unwrap();
                let least = if rows <= 16 { 0.85 } else { 0.84 };
                let name = shape.name;
                assert!(
                    (least..1.0).contains(&share),
                    "{name} {clock} {dtype} x {rows}: {share:.3}"
                );
            }
        }
    }
}
