// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a product of a language model's size takes: modelled times, memory, and
//! what the CPU does to activations.

use anyhow::Result;
use npu_matmul::plan::WeightPlan;
use npu_matmul::{Dtype, Plan, PlanOptions, Profile, WeightFormat};
use rknpu_regcmd::timing::Machine;

use super::cpu::KernelInstructions;
use super::kinds::QuantiseVariant;
use crate::plans::FDS;

/// Rows: llama.cpp's default batch.
const M: usize = 512;

/// Output channels and depth: Llama-3.1-8B's query and output.
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
    PlanOptions {
        profile: Profile::built_in()
            .at_clock(Machine::RK3588.clock_hz)
            .into(),
        ..PlanOptions::default()
    }
}

/// Cost of the product in FP16, as the table's other rows are compared with.
pub(super) fn fp16(counted: &KernelInstructions) -> Result<ProductCost> {
    let cost = planned(Dtype::Fp16, M, &conditions())?;
    let instructions = counted.fp16(cost.copies)?;
    Ok(ProductCost {
        instructions,
        ..cost
    })
}

/// Cost of the product, quantised as `kind` says.
pub(super) fn of(kind: &QuantiseVariant, counted: &KernelInstructions) -> Result<ProductCost> {
    let options = kind.options;
    let plan = WeightFormat::Quantised(options).plan_options(K, &conditions());
    let rows = M * options.operands.passes();
    let integers = planned(options.operands.dtype(), rows, &plan)?;
    let scales = K.div_ceil(options.group(K));
    Ok(ProductCost {
        weight_bytes: integers.weight_bytes + (scales * size_of::<f32>()) as f64 / K as f64,
        instructions: counted.quantised(kind, integers.copies)?,
        ..integers
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
