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

/// Makes an input of an output.
pub(crate) type MakeInput = fn(&[u8]) -> Vec<u8>;

/// An experiment: jobs on buffers, and how to compare their outcomes.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    /// Contents of the inputs, [`input`] 0 on.
    pub(crate) inputs: Vec<Vec<u8>>,
    /// Bytes of the output.
    pub(crate) output: usize,
    /// The jobs, which run one after another. The tasks of a job run one after another on one
    /// core.
    pub(crate) jobs: Vec<Vec<TaskTemplate>>,
    /// The number of jobs at the start whose outcomes are not part of the result.
    pub(crate) unobserved: usize,
    /// A buffer, and its contents from the output of an unobserved job before.
    pub(crate) feeds: Option<(BufferId, MakeInput)>,
    /// Whether only the set of outcomes counts, sorted: the jobs are equal, and the driver
    /// chooses their cores. Otherwise each job is compared with the same job on the model.
    pub(crate) is_unordered: bool,
    /// Sides on which part of the output is wrong in an unknown way. On these, wrong values
    /// match that differ from the model's.
    pub(crate) spoiled: &'static [&'static str],
    pub(crate) placement: Placement,
    pub(crate) witness: ExperimentWitness,
}

/// The task behind the last one of each job. Once it has run, so have all tasks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExperimentWitness {
    /// A tiny int8 matmul of zeros.
    Matmul,
    /// The job's last task again, with a separate output: it needs nothing that the
    /// experiment does not need.
    LastTask,
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

impl Experiment {
    pub(crate) fn of(inputs: Vec<Vec<u8>>, output: usize, jobs: Vec<Vec<TaskTemplate>>) -> Self {
        Self {
            inputs,
            output,
            jobs,
            unobserved: 0,
            feeds: None,
            is_unordered: false,
            spoiled: &[],
            placement: Placement::Guarded,
            witness: ExperimentWitness::Matmul,
        }
    }

    /// The first task of the first job, to be changed.
    pub(crate) fn task(&mut self) -> &mut TaskTemplate {
        &mut self.jobs[0][0]
    }
}
