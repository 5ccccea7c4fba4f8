// SPDX-License-Identifier: MIT OR Apache-2.0
//! What quantising costs and loses: the table of docs/quantisation.md.
//!
//! Losses are those of products that the engine computes on the software model,
//! costs those of the plans for a product of a language model's size.

mod cost;
mod cpu;
mod data;
mod kinds;

use std::fmt::Write;

use anyhow::Result;
use half::f16;
use npu_matmul::quantise::loss::nmse;
use npu_matmul::{Engine, Output, Weights};
use npu_model::{Level, Model, ModelOptions};
use rocket_uapi::DevicePool;

use cost::ProductCost;
use cpu::KernelInstructions;
use data::OperandMatrices;
use kinds::QuantiseVariant;

use crate::plans::FDS;

/// The table, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let (gaussian, outliers) = (OperandMatrices::gaussian(), OperandMatrices::outliers());
    let counted = KernelInstructions::recorded()?;
    let whole = cost::fp16(&counted)?;
    let mut page = String::from(
        "\n| quantisation | products | bytes a weight | modelled NPU time | CPU, results | \
         CPU, activations | NMSE, Gaussian | NMSE, outliers |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut row = |name: &str, products: &str, cost: ProductCost, losses: [f64; 2]| {
        let ProductCost {
            weight_bytes,
            instructions,
            ..
        } = cost;
        let time = cost.npu_ps as f64 / whole.npu_ps as f64;
        let results = 100.0 * cost.results_ps as f64 / whole.npu_ps as f64;
        let [gaussian, outliers] = losses;
        writeln!(
            page,
            "| {name} | {products} | {weight_bytes:.2} | {time:.2} | {results:.0} % | \
             {instructions:.1} | {gaussian:.1e} | {outliers:.1e} |"
        )
    };
    let losses = [fp16_loss(&gaussian)?, fp16_loss(&outliers)?];
    row("FP16", "1 FP16", whole, losses)?;
    for kind in kinds::all() {
        let losses = [loss(&kind, &gaussian)?, loss(&kind, &outliers)?];
        let cost = cost::of(&kind, &counted)?;
        row(kind.name, &kind.products(), cost, losses)?;
    }
    Ok(page)
}

/// The normalised mean square error of a quantised product.
fn loss(kind: &QuantiseVariant, data: &OperandMatrices) -> Result<f64> {
    let (engine, mut c) = (engine()?, vec![0.0; data::M * data::N]);
    let weights = engine.load(Weights::quantised(data::N, data::K, kind.options, &data.b))?;
    let gemm = engine.prepare(&weights, data::M, Output::F32)?;
    gemm.run(&data.a, &mut c)?;
    Ok(error(data, &c))
}

/// The loss of a product of operands that are rounded to FP16.
fn fp16_loss(data: &OperandMatrices) -> Result<f64> {
    let halves = |x: &[f32]| -> Vec<f16> { x.iter().copied().map(f16::from_f32).collect() };
    let (engine, mut c) = (engine()?, vec![0.0; data::M * data::N]);
    let weights = engine.load(Weights::f16(data::N, data::K, &halves(&data.b)))?;
    let gemm = engine.prepare(&weights, data::M, Output::F32)?;
    gemm.run(&halves(&data.a), &mut c)?;
    Ok(error(data, &c))
}

fn error(data: &OperandMatrices, c: &[f32]) -> f64 {
    let c: Vec<f64> = c.iter().copied().map(f64::from).collect();
    nmse(&data.product(), &c)
}

/// An engine on a model that stops at whatever silicon would punish.
fn engine() -> Result<Engine> {
    let model = Model::new(ModelOptions {
        level: Level::Strict,
        ..ModelOptions::default()
    });
    let pool = DevicePool::open(&model.open_device(), FDS)?;
    Ok(Engine::open(pool)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What docs/quantisation.md says of these losses.
    #[test]
    fn losses_are_in_the_order_that_the_page_tells() {
        let (gaussian, outliers) = (OperandMatrices::gaussian(), OperandMatrices::outliers());
        let of = |data: &OperandMatrices, name: &str| {
            let kind = kinds::all().into_iter().find(|kind| kind.name == name);
            loss(&kind.unwrap(), data).unwrap()
        };
        let less = |data: &OperandMatrices, times: f64, better: &str, worse: &str| {
            let (least, most) = (of(data, better), of(data, worse));
            assert!(
                least * times <= most,
                "{better}: {least:e}, {worse}: {most:e}"
            );
        };
        // Even data gain from small groups, and little from anything else.
        less(&gaussian, 1.0, "W8A8, groups of 128", "W8A8");
        less(&gaussian, 1.0, "W4A8, groups of 128", "W4A8");
        less(&gaussian, 1.0, "W4A8, least square error", "W4A8");
        less(&gaussian, 1.5, "W4A8", "W4A4");
        less(&gaussian, 100.0, "W8A8", "W4A8");
        // Outliers ruin one scale for a row.
        assert!(of(&gaussian, "W8A8") * 20.0 <= of(&outliers, "W8A8"));
        less(&outliers, 5.0, "W8A8, rotated", "W8A8");
        less(&outliers, 1.5, "W8A8, groups of 128", "W8A8");
        less(&outliers, 1.0, "W8A8, groups of 128", "W8A8, groups of 512");
        less(&outliers, 1.5, "W4A8, least square error", "W4A8");
        less(&outliers, 0.8, "W8A8", "W8A8, least square error");
        less(&outliers, 5.0, "W4A4, rotated", "W4A4");
    }

    /// What docs/quantisation.md says of times and memory.
    #[test]
    fn costs_are_in_the_proportions_that_the_page_tells() {
        let counted = KernelInstructions::recorded().unwrap();
        let of = |name: &str| {
            let kind = kinds::all().into_iter().find(|kind| kind.name == name);
            cost::of(&kind.unwrap(), &counted).unwrap()
        };
        let ratio = |a: u64, b: u64| a as f64 / b as f64;
        let fp16 = cost::fp16(&counted).unwrap();
        let (w8a8, w4a8, w4a4) = (of("W8A8"), of("W4A8"), of("W4A4"));
        // Groups of 512 take less NPU time than FP16, groups of 128 more.
        assert!(of("W8A8, groups of 512").npu_ps < fp16.npu_ps);
        assert!(of("W8A8, groups of 128").npu_ps > fp16.npu_ps);
        assert!(of("W4A8, groups of 128").npu_ps > fp16.npu_ps);
        // Nothing has the CPU read more than small groups.
        let groups = ["W8A8, groups of 128", "W4A8, groups of 128"];
        let small = groups.map(|name| of(name).results_ps).into_iter().max();
        for kind in kinds::all() {
            assert!(Some(of(kind.name).results_ps) <= small, "{}", kind.name);
        }
        // Four bits save memory, not time.
        assert!((1.7..2.1).contains(&ratio(w4a8.npu_ps, w4a4.npu_ps)));
        assert!((0.49..0.51).contains(&(w4a8.weight_bytes / w8a8.weight_bytes)));
        assert!((1.4..1.7).contains(&ratio(w4a8.npu_ps, w8a8.npu_ps)));
        assert!((0.49..0.51).contains(&(w8a8.weight_bytes / fp16.weight_bytes)));
        // A rotation is more than all else that the CPU does to activations, and
        // nothing to the NPU.
        for [rotated, plain] in [
            ["W8A8, rotated", "W8A8"],
            ["W4A8, rotated", "W4A8"],
            ["W4A4, rotated", "W4A4"],
        ] {
            let (rotated, plain) = (of(rotated), of(plain));
            assert!(rotated.instructions > 2.0 * plain.instructions);
            assert_eq!(rotated.npu_ps, plain.npu_ps);
        }
        // Splitting is more than packing bytes.
        assert!(w4a8.instructions > w8a8.instructions);
    }
}
