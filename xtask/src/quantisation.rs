// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of docs/quality.md: cost and error of quantisation.
//!
//! The errors come from matmuls that the engine computes on the software model. The costs come from
//! plans of a matmul of a language model's size.

use std::f64::consts::TAU;

use anyhow::Result;
use half::f16;
use npu_matmul::plan::WeightPlan;
use npu_matmul::quantise::Quantisation;
use npu_matmul::quantise::nmse;
use npu_matmul::{Activations, Dtype, Engine, Plan, PlanOptions, Weights};
use npu_model::{Level, Model, ModelOptions};
use rknpu_regcmd::timing::Machine;
use rocket_uapi::DevicePool;

use crate::generated::table;
use crate::plans::FDS;

/// Rows of A, output channels, and depth of the matmuls whose error is measured.
const M: usize = 48;
const N: usize = 64;
const K: usize = 1024;

/// Rows, output channels and depth of the matmul whose cost is shown: llama.cpp's default batch,
/// and query and output of Llama-3.1-8B.
const COST: [usize; 3] = [512, 4096, 4096];

/// Columns of large activations, and their factor. As in language models they are few and the same
/// in each row.
const LARGE_COLUMNS: [usize; 6] = [5, 150, 333, 512, 700, 1001];
const LARGE: f32 = 60.0;

/// One weight in this number is large, anywhere, by this factor.
const LARGE_WEIGHTS: usize = 400;
const LARGE_WEIGHT: f32 = 8.0;

const HEADS: &str = "quantisation | matmul | bytes per weight | modelled NPU time \
                     | CPU, results | NMSE, Gaussian | NMSE, outliers";

/// The table, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let data = [OperandMatrices::gaussian(), OperandMatrices::outliers()];
    let whole = fp16_cost()?;
    let row = |name: &str, matmuls: &str, cost: MatmulCost, losses: [f64; 2]| {
        let weight_bytes = cost.weight_bytes;
        let time = cost.npu_ps as f64 / whole.npu_ps as f64;
        let results = 100.0 * cost.results_ps as f64 / whole.npu_ps as f64;
        let [gaussian, outliers] = losses;
        format!(
            "{name} | {matmuls} | {weight_bytes:.2} | {time:.2} | {results:.0} % | \
             {gaussian:.1e} | {outliers:.1e}"
        )
    };
    let losses = [fp16_loss(&data[0])?, fp16_loss(&data[1])?];
    let mut rows = vec![row("FP16", "FP16", whole, losses)];
    let int8 = int8_cost()?;
    for to in Quantisation::ALL {
        let losses = [loss(to, &data[0])?, loss(to, &data[1])?];
        rows.push(row(&format!("{to:?}"), "INT8", int8, losses));
    }
    Ok(table(HEADS, rows))
}

/// Costs of one matmul on the NPU and the CPU.
#[derive(Clone, Copy, Debug)]
struct MatmulCost {
    /// Modelled time of the NPU, ps.
    npu_ps: u64,
    /// Modelled time of the CPU to read the results, add up K tiles and scale, ps.
    results_ps: u64,
    /// Device memory and scales for each element of B, bytes.
    weight_bytes: f64,
}

/// Cost of the matmul in FP16, the base of the table's other rows.
fn fp16_cost() -> Result<MatmulCost> {
    planned(Dtype::Fp16)
}

/// Cost of the matmul with any quantisation.
fn int8_cost() -> Result<MatmulCost> {
    let cost = planned(Dtype::Int8)?;
    let scale = size_of::<f32>();
    Ok(MatmulCost {
        weight_bytes: cost.weight_bytes + scale as f64 / COST[2] as f64,
        ..cost
    })
}

/// Plan options at the clock of most published figures. The NPU computes all jobs, in each
/// precision.
fn conditions() -> PlanOptions {
    PlanOptions {
        cpu_jobs: Some(false),
        ..PlanOptions::uncalibrated(Machine::RK3588.clock_hz)
    }
}

fn planned(dtype: Dtype) -> Result<MatmulCost> {
    let [m, n, k] = COST;
    let options = conditions();
    let weights = WeightPlan::new(dtype, n, k, FDS, &options)?;
    let plan = Plan::new(&weights, m, &options)?;
    Ok(MatmulCost {
        npu_ps: plan.predict(&options.profile.machine).npu_ps,
        results_ps: plan.call(&options).unpack_ps,
        weight_bytes: weights.device_bytes() as f64 / (n * k) as f64,
    })
}

/// The normalised mean square error of a quantised matmul.
fn loss(to: Quantisation, data: &OperandMatrices) -> Result<f64> {
    let c = multiply(Weights::quantised(N, K, to, &data.b), (&data.a).into())?;
    Ok(data.error(&c))
}

/// The error of a matmul of operands rounded to FP16.
fn fp16_loss(data: &OperandMatrices) -> Result<f64> {
    let halves = |x: &[f32]| -> Vec<f16> { x.iter().copied().map(f16::from_f32).collect() };
    let (a, b) = (halves(&data.a), halves(&data.b));
    Ok(data.error(&multiply(Weights::f16(N, K, &b), (&a).into())?))
}

/// Multiplies on a model that stops at anything that fails on silicon.
fn multiply(b: Weights<'_>, a: Activations<'_>) -> Result<Vec<f32>> {
    let model = Model::new(ModelOptions {
        level: Level::Strict,
        ..ModelOptions::default()
    });
    let engine = Engine::open(DevicePool::open(&model.open_device(), FDS)?)?;
    let mut c = vec![0.0; M * N];
    engine.prepare(&engine.load(b)?, M)?.run(a, &mut c)?;
    Ok(c)
}

/// A and B of a matmul.
struct OperandMatrices {
    /// M x K.
    a: Vec<f32>,
    /// N x K.
    b: Vec<f32>,
}

impl OperandMatrices {
    /// Standard normal numbers.
    fn gaussian() -> Self {
        Self {
            a: normal(1, M * K),
            b: normal(2, N * K),
        }
    }

    /// Normal numbers with large columns of A and large elements of B.
    fn outliers() -> Self {
        let Self { mut a, mut b } = Self::gaussian();
        for row in a.chunks_mut(K) {
            LARGE_COLUMNS
                .iter()
                .for_each(|&column| row[column] *= LARGE);
        }
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..N * K / LARGE_WEIGHTS {
            b[random.usize(..N * K)] *= LARGE_WEIGHT;
        }
        Self { a, b }
    }

    /// The error of C compared with the matmul in f64.
    fn error(&self, c: &[f32]) -> f64 {
        let dot = |a: &[f32], b: &[f32]| {
            let pairs = a.iter().zip(b);
            pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let row = |a| self.b.chunks(K).map(move |b| dot(a, b));
        let exact: Vec<f64> = self.a.chunks(K).flat_map(row).collect();
        nmse(
            &exact,
            &c.iter().copied().map(f64::from).collect::<Vec<_>>(),
        )
    }
}

/// Standard normal numbers (Box and Muller, 1958).
fn normal(seed: u64, count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut one = || {
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        (radius * (TAU * random.f64()).cos()) as f32
    };
    (0..count).map(|_| one()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors are in the order that docs/quality.md states.
    #[test]
    fn losses_are_in_the_order_that_the_page_tells() {
        let (gaussian, outliers) = (OperandMatrices::gaussian(), OperandMatrices::outliers());
        let of = |data| Quantisation::ALL.map(|to| loss(to, data).unwrap());
        let [plain, rotated] = of(&gaussian);
        assert!((0.5..2.0).contains(&(plain / rotated)));
        // Outliers spoil a single scale for each row; rotated rows have no outliers.
        let [plain_outliers, rotated_outliers] = of(&outliers);
        assert!(plain_outliers > 20.0 * plain);
        assert!(rotated_outliers < 1.5 * rotated);
    }

    /// Times and memory are in the proportions that docs/quality.md states.
    #[test]
    fn costs_are_in_the_proportions_that_the_page_tells() {
        let fp16 = fp16_cost().unwrap();
        let int8 = int8_cost().unwrap();
        assert!((0.49..0.51).contains(&(int8.weight_bytes / fp16.weight_bytes)));
        assert!(int8.npu_ps < fp16.npu_ps && int8.results_ps < fp16.results_ps);
    }
}
