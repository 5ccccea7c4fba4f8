// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments about cores: what registers keep, and what makes a core hang.

use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::task::CONVOLUTION;
use rknpu_regcmd::{EnableMask, Program, Register};

use super::matmuls;
use crate::experiment::{Experiment, ExperimentJob, OUT, TaskTemplate, word_of};

/// S_POINTER as programs write it: both pointers toggle.
const POINTER: u32 = 0xe;

/// Enough jobs to reach every core that a file uses: the scheduler moves an idle file to
/// another core with each job.
const ROUND: usize = 4;

/// A program that changes only the output address. Two whole programs before it set both
/// register groups, so it runs with their registers, if it runs.
pub(super) fn delta_program() -> anyhow::Result<Experiment> {
    let (whole, inputs, length) = matmuls::small()?;
    let words = vec![
        word_of(dpu::SPointer::from_bits(POINTER)),
        word_of(dpu::DstBaseAddr::new()),
    ];
    let address = (1, OUT.at(length as u32));
    let delta = Program::of_words(words, vec![address], CONVOLUTION);
    let tasks = vec![whole.clone(), whole, TaskTemplate::of(&delta)];
    Ok(Experiment::of_job(inputs, 2 * length, tasks))
}

/// Checks plain matmuls on every core that a file uses.
pub(crate) fn health() -> anyhow::Result<Experiment> {
    let (good, inputs, output) = matmuls::small()?;
    Ok(Experiment::of_each(inputs, output, vec![good; ROUND]))
}

/// A job that hangs, since it does not start the DPU, and good jobs behind it.
pub(super) fn wedge() -> anyhow::Result<Experiment> {
    let (good, inputs, output) = matmuls::small()?;
    let mut hang = good.clone();
    hang.enable(EnableMask::CNA | EnableMask::CORE);
    let hanging = ExperimentJob {
        tasks: vec![hang],
        observed: false,
    };
    let mut experiment = Experiment::of_each(inputs, output, vec![good; ROUND]);
    experiment.jobs.insert(0, hanging);
    experiment.is_unordered = true;
    Ok(experiment)
}
