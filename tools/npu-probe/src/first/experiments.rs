// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rungs that are not only matmuls.

use rknpu_regcmd::regs::dpu;

use super::matmuls::fp16;
use crate::calibrate::facts::flying::{FlyingOperation, flying};
use crate::experiment::operands::make_subnormal;
use crate::experiment::{Experiment, OUT};

pub(super) fn form_a_behind_flying() -> anyhow::Result<Experiment> {
    let mut experiment = fp16(4, 32, &[16]).form_a().experiment()?;
    let addition = flying(FlyingOperation::Add, [0.0; 8], [0.0; 8])?;
    // The addition reads the first atoms of the matmul's operands, and writes behind
    // its results.
    let results = experiment.output;
    experiment.output += addition.output;
    let additions = addition.jobs.into_iter().flat_map(|job| job.tasks);
    for (job, mut addition) in experiment.jobs.iter_mut().zip(additions) {
        addition.put_address::<dpu::DstBaseAddr>(OUT.at(results as u32));
        job.tasks.insert(0, addition);
    }
    Ok(experiment)
}

/// A matmul of subnormals: in a pair of a row and a column, none, one or both are
/// subnormal.
pub(super) fn subnormals() -> anyhow::Result<Experiment> {
    const ROWS: usize = 4;
    const CHANNELS: usize = 32;
    /// fp16 values per atom.
    const ATOM: usize = 8;
    let mut experiment = fp16(ROWS as u32, CHANNELS as u32, &[16]).experiment()?;
    if let [features, weights] = &mut experiment.inputs[..] {
        make_subnormal(features, 3, |index| index / ATOM % ROWS >= 2);
        make_subnormal(weights, 4, |index| index / CHANNELS >= 8);
    }
    Ok(experiment)
}
