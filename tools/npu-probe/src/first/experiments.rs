// SPDX-License-Identifier: MIT OR Apache-2.0
//! What some rungs change about a product: its form, its place, its operands, the task in
//! front of it.

use rknpu_regcmd::MatmulType::{self, Fp16ToFp32, Int8ToInt32};
use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::{MatmulForm, ReuseRule};

use super::products::{RungProduct, SharedOperand, proven};
use crate::calibrate::facts::flying::{FlyingOperation, flying};
use crate::experiment::operands::make_subnormal;
use crate::experiment::{Experiment, OUT, Placement};

/// The buffers of an experiment without its jobs.
pub(super) fn idle(mut experiment: Experiment) -> Experiment {
    experiment.jobs.clear();
    experiment
}

pub(super) fn placed(placement: Placement) -> anyhow::Result<Experiment> {
    let mut experiment = RungProduct::new(Fp16ToFp32, 4, 32, &[16]).experiment()?;
    experiment.placement = placement;
    Ok(experiment)
}

pub(super) fn form_a(mut product: RungProduct) -> anyhow::Result<Experiment> {
    product.options.form = MatmulForm::A;
    product.experiment()
}

pub(super) fn reusing(mut product: RungProduct) -> anyhow::Result<Experiment> {
    product.options = proven(product.ty);
    product.options.reuse = ReuseRule::Always;
    product.experiment()
}

/// The second task uses the weights that the first has left.
pub(super) fn weight_reusing(ty: MatmulType) -> anyhow::Result<Experiment> {
    let mut product = RungProduct::new(ty, 64, 64, &[64, 64]);
    product.shared = SharedOperand::Weights;
    reusing(product)
}

pub(super) fn tasks(columns: &'static [u32]) -> anyhow::Result<Experiment> {
    RungProduct::new(Int8ToInt32, 8, 64, columns).experiment()
}

pub(super) fn form_a_behind_flying() -> anyhow::Result<Experiment> {
    let mut experiment = form_a(RungProduct::new(Fp16ToFp32, 4, 32, &[16]))?;
    let addition = flying(FlyingOperation::Add, [0.0; 8], [0.0; 8])?;
    // It adds the first atoms of the product's operands, and writes behind its results.
    let results = experiment.output;
    experiment.output += addition.output;
    let additions = addition.jobs.into_iter().flat_map(|job| job.tasks);
    for (job, mut addition) in experiment.jobs.iter_mut().zip(additions) {
        addition.put_address::<dpu::DstBaseAddr>(OUT.at(results as u32));
        job.tasks.insert(0, addition);
    }
    Ok(experiment)
}

/// Of each pair of a row and a column neither, one or both are subnormal.
pub(super) fn subnormals() -> anyhow::Result<Experiment> {
    const ROWS: usize = 4;
    const CHANNELS: usize = 32;
    /// Halves of an atom.
    const ATOM: usize = 8;
    let mut experiment =
        RungProduct::new(Fp16ToFp32, ROWS as u32, CHANNELS as u32, &[16]).experiment()?;
    if let [features, weights] = &mut experiment.inputs[..] {
        make_subnormal(features, 3, |index| index / ATOM % ROWS >= 2);
        make_subnormal(weights, 4, |index| index / CHANNELS >= 8);
    }
    Ok(experiment)
}
