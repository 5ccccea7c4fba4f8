// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a product of a language model's size takes: modelled times, memory, and
//! what the CPU does to activations, by the instructions that `cargo xtask instructions`
//! has recorded in docs/matmul-figures.md.

use anyhow::{Context, Result};
use npu_matmul::plan::WeightPlan;
use npu_matmul::quantise::{Operands, QuantiseOptions};
use npu_matmul::{Dtype, Plan, PlanOptions, Profile, WeightFormat};
use rknpu_regcmd::timing::Machine;

use crate::generated::section;
use crate::plans::FDS;
use crate::{instructions, paths};

/// Rows: llama.cpp's default batch. Output channels and depth: Llama-3.1-8B's query and
/// output.
const M: usize = 512;
const N: usize = 4096;
const K: usize = 4096;

/// What one product costs the NPU and the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProductCost {
    /// Modelled time of the device, ps.
    pub(super) npu_ps: u64,
    /// Modelled time of the CPU to read the results, add up K tiles and scale, ps.
    pub(super) results_ps: u64,
    /// Device memory and scales for each element of B, bytes.
    pub(super) weight_bytes: f64,
    /// Instructions of the CPU for each element of A.
    pub(super) instructions: f64,
    /// File descriptors whose jobs read a copy of the same activations.
    copies: usize,
}

/// Under the conditions of most published figures.
fn conditions() -> PlanOptions {
    let profile = Profile::built_in()
        .at_clock(Machine::RK3588.clock_hz)
        .into();
    PlanOptions {
        profile,
        ..PlanOptions::default()
    }
}

/// Cost of the product in FP16, as the table's other rows are compared with.
pub(super) fn fp16(counted: &KernelInstructions) -> Result<ProductCost> {
    let cost = planned(Dtype::Fp16, M, &conditions())?;
    let pack = counted.of("pack f16 activations")?;
    // Rounded once, into rows, which the tiles of each file descriptor are made of.
    let round = counted.of("f32 to f16 and pack")? - pack;
    Ok(ProductCost {
        instructions: round + cost.copies as f64 * pack,
        ..cost
    })
}

/// Cost of the product, quantised so.
pub(super) fn of(options: QuantiseOptions, counted: &KernelInstructions) -> Result<ProductCost> {
    let plan = WeightFormat::Quantised(options).plan_options(K, &conditions());
    let operands = options.operands;
    let cost = planned(operands.dtype(), M * operands.passes(), &plan)?;
    let scales = K.div_ceil(options.group(K)) * size_of::<f32>();
    let quantise =
        counted.of("absmax, quantise and pack")? - counted.of("pack int8 activations")?;
    let rotate = match options.rotated {
        true => counted.of("Hadamard, blocks of 4096")?,
        false => 0.0,
    };
    let pack = counted.of(match operands {
        Operands::W8A8 => "pack int8 activations",
        Operands::W4A8 => "split into nibbles and pack",
        // The same routine: atoms of INT4 are as long as runs of weights.
        Operands::W4A4 => "pack int4 weights",
    })?;
    Ok(ProductCost {
        weight_bytes: cost.weight_bytes + scales as f64 / K as f64,
        instructions: quantise + rotate + cost.copies as f64 * pack,
        ..cost
    })
}

fn planned(dtype: Dtype, rows: usize, options: &PlanOptions) -> Result<ProductCost> {
    let weights = WeightPlan::new(dtype, N, K, FDS, options)?;
    let plan = Plan::new(&weights, rows, options)?;
    Ok(ProductCost {
        npu_ps: plan.predict(&options.profile.machine).npu_ps,
        results_ps: plan.call(options).unpack_ps,
        weight_bytes: weights.device_bytes() as f64 / (N * K) as f64,
        instructions: 0.0,
        copies: FDS / weights.replicas,
    })
}

/// Instructions for an element of each kernel.
pub(super) struct KernelInstructions(Vec<(String, f64)>);

impl KernelInstructions {
    /// Reads the counts that are on the page now.
    pub(super) fn recorded() -> Result<Self> {
        let page = paths::text(&paths::root().join(instructions::PAGE))?;
        let kernel = |line: &str| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
        };
        let table = section(&page, instructions::SECTION)?;
        Ok(Self(table.lines().filter_map(kernel).collect()))
    }

    fn of(&self, kernel: &str) -> Result<f64> {
        let found = self.0.iter().find(|(name, _)| name == kernel);
        found.map(|(_, count)| *count).with_context(|| {
            let page = instructions::PAGE;
            format!("{page} counts no `{kernel}`; run `cargo xtask instructions --record`")
        })
    }
}

#[cfg(test)]
mod tests {
    use npu_matmul::plan::{KernelCost, UnpackTo};
    use rknpu_regcmd::MatmulType::{Int4ToInt16, Int8ToInt32};

    use super::*;

    /// Plans are made with the recorded counts.
    #[test]
    fn the_host_model_has_what_was_counted() {
        let counted = KernelInstructions::recorded().unwrap();
        let of = |kernel| 100.0 * counted.of(kernel).unwrap();
        let [int8, f16] = ["pack int8 activations", "pack f16 activations"].map(of);
        let unpack = KernelCost::unpack;
        for (cost, expected) in [
            (KernelCost::pack(Dtype::Int8), int8),
            (KernelCost::pack(Dtype::Fp16), f16),
            // Two rows of nibbles for one of bytes.
            (
                KernelCost::pack(Dtype::Int4),
                of("split into nibbles and pack") / 2.0,
            ),
            (
                unpack(Int8ToInt32, UnpackTo::Result),
                of("unpack int32, dequantise"),
            ),
            (
                unpack(Int8ToInt32, UnpackTo::CachedSum),
                of("unpack int32, add"),
            ),
            (
                unpack(Int4ToInt16, UnpackTo::Sum),
                of("unpack int16 to int32"),
            ),
            (
                KernelCost::round(Dtype::Fp16),
                of("f32 to f16 and pack") - f16,
            ),
            (
                KernelCost::round(Dtype::Int8),
                of("absmax, quantise and pack") - int8,
            ),
            // A block of 4096 has 12 stages.
            (
                KernelCost::ROTATION_STAGE,
                of("Hadamard, blocks of 4096") / 12.0,
            ),
        ] {
            let difference = f64::from(cost.centi_instructions) - expected;
            assert!(difference.abs() <= 0.51, "{cost:?}, counted: {expected}");
        }
    }
}
