// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments as data.

use rknpu_regcmd::BufferId;

use super::template::TaskTemplate;

/// The output of every experiment.
pub(crate) const OUT: BufferId = BufferId(0);

/// Input `index` of an experiment.
pub(crate) const fn input(index: u32) -> BufferId {
    BufferId(index + 1)
}

/// An experiment: jobs on buffers, and how to compare their outcomes.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    /// Contents of the inputs, [`input`] 0 on.
    pub(crate) inputs: Vec<Vec<u8>>,
    /// Bytes of the output.
    pub(crate) output: usize,
    /// The jobs, which run one after another.
    pub(crate) jobs: Vec<ExperimentJob>,
    /// Whether only the set of outcomes counts, sorted: the jobs are equal, and the driver
    /// chooses their cores. Otherwise each job is compared with the same job on the model.
    pub(crate) is_unordered: bool,
    /// Sides on which part of the output is wrong in an unknown way. On these, wrong values
    /// match that differ from the model's.
    pub(crate) spoiled: &'static [&'static str],
    pub(crate) placement: Placement,
}

/// Where the buffers of an experiment are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Nothing is at IOVA 0, and there is room on both sides of each operand.
    Guarded,
    /// The program is at IOVA 0.
    ProgramAtZero,
    /// The weights, which are input 1, are at IOVA 0.
    WeightsAtZero,
    /// The features, which are input 0, end where their buffer ends, and nothing is mapped
    /// behind it. Their size is a multiple of the page size.
    NothingBehindFeatures,
}

/// Programs that run one after another on one core.
#[derive(Clone, Debug)]
pub(crate) struct ExperimentJob {
    pub(crate) tasks: Vec<TaskTemplate>,
    /// Whether its outcome is part of the result.
    pub(crate) observed: bool,
}

impl Experiment {
    /// One job with one task.
    pub(crate) fn of(inputs: Vec<Vec<u8>>, output: usize, task: TaskTemplate) -> Self {
        Self::of_job(inputs, output, vec![task])
    }

    /// One job.
    pub(crate) fn of_job(inputs: Vec<Vec<u8>>, output: usize, tasks: Vec<TaskTemplate>) -> Self {
        Self {
            inputs,
            output,
            jobs: vec![ExperimentJob::of(tasks)],
            is_unordered: false,
            spoiled: &[],
            placement: Placement::Guarded,
        }
    }

    /// Jobs of one task each.
    pub(crate) fn of_each(
        inputs: Vec<Vec<u8>>,
        output: usize,
        tasks: impl IntoIterator<Item = TaskTemplate>,
    ) -> Self {
        let jobs = tasks.into_iter().map(|task| ExperimentJob::of(vec![task]));
        Self {
            jobs: jobs.collect(),
            ..Self::of_job(inputs, output, Vec::new())
        }
    }

    pub(crate) fn spoiled_on(mut self, sides: &'static [&'static str]) -> Self {
        self.spoiled = sides;
        self
    }
}

impl ExperimentJob {
    pub(crate) const fn of(tasks: Vec<TaskTemplate>) -> Self {
        Self {
            tasks,
            observed: true,
        }
    }
}
