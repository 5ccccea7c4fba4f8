// SPDX-License-Identifier: MIT OR Apache-2.0
//! Planned matmuls. Plans depend on shapes only; weights of one shape share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rknpu_regcmd::ProgramOptions;

use crate::numbers::dtype::Results;
use crate::plan::{JobPlan, Plan, Step, WeightPlan};

/// A planned matmul: weights of one shape with a number of rows.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Identifies its programs in the cache.
    pub(crate) id: u64,
    /// The tiling.
    pub(crate) plan: Plan,
    /// The steps, in order.
    pub(crate) steps: Vec<Step>,
    /// Bytes that it takes.
    pub(crate) bytes: usize,
    /// Whether all kinds of its tasks were checked, if the engine checks first tasks.
    pub(crate) is_checked: AtomicBool,
}

/// A unique number.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Prepared {
    pub(crate) fn new(plan: Plan) -> Self {
        let steps: Vec<Step> = plan.steps().collect();
        let jobs = steps.iter().flat_map(|step| &step.jobs);
        let jobs = jobs.map(|job| size_of::<JobPlan>() + job.heap_bytes());
        let of_steps = steps.capacity() * size_of::<Step>();
        Self {
            id: next_id(),
            bytes: size_of::<Self>() + of_steps + jobs.sum::<usize>(),
            steps,
            plan,
            is_checked: AtomicBool::new(false),
        }
    }

    /// A job of the plan.
    pub(crate) fn job(&self, at: JobIndex) -> &JobPlan {
        &self.steps[at.step].jobs[at.job]
    }
}

/// Index of a job in a prepared matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobIndex {
    /// Index of the step.
    pub(crate) step: usize,
    /// Index of the job in the step.
    pub(crate) job: usize,
}

/// Everything that the plan of a matmul depends on, in one engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatmulKey {
    /// Weights with the same tiling share plans.
    pub(crate) weights: Arc<WeightPlan>,
    /// Rows of A.
    pub(crate) m: usize,
    /// Results of the NPU.
    pub(crate) results: Results,
    /// Options for programs.
    pub(crate) program: ProgramOptions,
}
