// SPDX-License-Identifier: MIT OR Apache-2.0
//! What quantising costs and loses: the table of docs/quantisation.md.
//!
//! Losses are those of products that the engine computes on the software model,
//! costs those of the plans for a product of a language model's size.

mod cost;
mod data;
mod kinds;

use std::fmt::Write;

use anyhow::Result;
use half::f16;
use npu_matmul::Engine;
use npu_matmul::quantise::loss::nmse;
use npu_model::{Level, Model, ModelOptions};
use rocket_uapi::DevicePool;

use cost::Cost;
use data::Data;
use kinds::Kind;

/// Name of the section of docs/quantisation.md that the table stands in.
pub(crate) const SECTION: &str = "schemes";

/// The table, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let (gaussian, outliers) = (Data::gaussian(), Data::outliers());
    let whole = cost::fp16()?;
    let mut page = String::from(
        "\n| quantisation | products | bytes a weight | modelled NPU time | CPU sums | \
         NMSE, Gaussian | NMSE, outliers |\n|---|---|---|---|---|---|---|\n",
    );
    let mut row = |name: &str, products: &str, cost: Cost, losses: [f64; 2]| {
        let Cost { weight_bytes, .. } = cost;
        let time = cost.npu_ps as f64 / whole.npu_ps as f64;
        let sums = 100.0 * cost.sum_ps as f64 / whole.npu_ps as f64;
        let [gaussian, outliers] = losses;
        writeln!(
            page,
            "| {name} | {products} | {weight_bytes:.2} | {time:.2} | {sums:.0} % | {gaussian:.1e} \
             | {outliers:.1e} |"
        )
    };
    let losses = [fp16_loss(&gaussian)?, fp16_loss(&outliers)?];
    row("FP16", "1 FP16", whole, losses)?;
    for kind in kinds::all() {
        let losses = [loss(&kind, &gaussian)?, loss(&kind, &outliers)?];
        row(kind.name, &kind.products(), cost::of(&kind)?, losses)?;
    }
    Ok(page)
}

/// The normalised mean square error of a quantised product.
fn loss(kind: &Kind, data: &Data) -> Result<f64> {
    let (engine, mut c) = (engine()?, vec![0.0; data::M * data::N]);
    let options = kind.options(data);
    let weights = engine.load_quantised(data::N, data::K, &options, &data.b)?;
    engine.multiply_quantised(&weights, data::M, &data.a, &mut c)?;
    Ok(error(data, &c))
}

/// That of a product of operands that are rounded to FP16.
fn fp16_loss(data: &Data) -> Result<f64> {
    let halves = |x: &[f32]| -> Vec<f16> { x.iter().copied().map(f16::from_f32).collect() };
    let (engine, mut c) = (engine()?, vec![0.0; data::M * data::N]);
    let weights = engine.load_f16(data::N, data::K, &halves(&data.b))?;
    engine.multiply_f32(&weights, data::M, &halves(&data.a), &mut c)?;
    Ok(error(data, &c))
}

fn error(data: &Data, c: &[f32]) -> f64 {
    let c: Vec<f64> = c.iter().copied().map(f64::from).collect();
    nmse(&data.product(), &c)
}

/// An engine on a model that stops at whatever silicon would punish.
fn engine() -> Result<Engine> {
    let model = Model::new(ModelOptions {
        level: Level::Strict,
        ..ModelOptions::default()
    });
    let pool = DevicePool::open(&model.open_device(), cost::FDS)?;
    Ok(Engine::new(pool)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What docs/quantisation.md says of these losses.
    #[test]
    fn losses_are_in_the_order_that_the_page_tells() {
        let (gaussian, outliers) = (Data::gaussian(), Data::outliers());
        let of = |data: &Data, name: &str| {
            let kind = kinds::all().into_iter().find(|kind| kind.name == name);
            loss(&kind.unwrap(), data).unwrap()
        };
        let less = |data: &Data, times: f64, better: &str, worse: &str| {
            let (least, most) = (of(data, better), of(data, worse));
            assert!(
                least * times <= most,
                "{better}: {least:e}, {worse}: {most:e}"
            );
        };
        // Even data gain from small groups, and little from anything else.
        less(&gaussian, 1.0, "W8A8, groups of 128", "W8A8");
        less(&gaussian, 1.0, "W8A8", "W8A8, per tensor");
        less(&gaussian, 1.0, "W4A8, groups of 128", "W4A8");
        less(&gaussian, 1.0, "W4A8, least square error", "W4A8");
        less(&gaussian, 1.5, "W4A8", "W4A4");
        less(&gaussian, 100.0, "W8A8", "W4A8");
        // Outliers ruin one scale for a row.
        assert!(of(&gaussian, "W8A8") * 20.0 <= of(&outliers, "W8A8"));
        less(&outliers, 5.0, "W8A8, rotated", "W8A8");
        less(&outliers, 5.0, "W8A8, outlier columns", "W8A8");
        less(&outliers, 5.0, "W8A8, outliers by call", "W8A8");
        less(&outliers, 1.5, "W8A8, groups of 128", "W8A8");
        less(&outliers, 1.0, "W8A8, groups of 128", "W8A8, groups of 512");
        less(&outliers, 1.5, "W4A8, least square error", "W4A8");
        less(&outliers, 1.0, "W8A8, outlier columns", "W8A8, rotated");
        less(&outliers, 0.8, "W8A8", "W8A8, least square error");
        less(&outliers, 5.0, "W4A4, rotated", "W4A4");
    }
}
