// SPDX-License-Identifier: MIT OR Apache-2.0
//! Planned matmuls. Plans depend on shapes only; weights of one shape share them.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::numbers::dtype::Dtype;
use crate::plan::{JobPlan, Plan, PlanError, PlanOptions, SharedTimes, Step, WeightPlan};

/// A planned matmul: weights of one shape with a number of rows.
#[derive(Debug)]
pub(crate) struct KeptPlan {
    pub(crate) question: PlanKey,
    /// Its number, from [`next_id`].
    id: u64,
    /// The tiling.
    pub(crate) plan: Plan,
    /// The steps, in order.
    pub(crate) steps: Vec<Step>,
    /// Bytes that it takes.
    pub(crate) bytes: usize,
    /// Whether all kinds of its tasks were checked, if the engine checks first tasks.
    pub(crate) is_checked: AtomicBool,
    /// By which NPU and CPU share its jobs; `None` if they do not.
    pub(crate) shared_times: OnceLock<Option<SharedTimes>>,
}

/// A unique number.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl KeptPlan {
    pub(crate) fn new(question: &PlanKey) -> Result<Self, PlanError> {
        let plan = question.plan()?;
        let steps: Vec<Step> = plan.steps().collect();
        let jobs = steps.iter().flat_map(|step| &step.jobs);
        let jobs = jobs.map(|job| size_of::<JobPlan>() + job.heap_bytes());
        let step_bytes = steps.capacity() * size_of::<Step>();
        Ok(Self {
            question: question.clone(),
            id: next_id(),
            bytes: size_of::<Self>() + step_bytes + jobs.sum::<usize>(),
            steps,
            plan,
            is_checked: AtomicBool::new(false),
            shared_times: OnceLock::new(),
        })
    }

    /// A job of a step.
    pub(crate) fn job(&self, step: usize, job: usize) -> PlanJob<'_> {
        let plan = self.id;
        PlanJob {
            id: JobId { plan, step, job },
            plan: &self.steps[step].jobs[job],
        }
    }
}

/// A job of a plan, to be submitted. The plans of jobs with the same `id` are the same.
#[derive(Clone, Copy)]
pub(crate) struct PlanJob<'p> {
    pub(crate) id: JobId,
    pub(crate) plan: &'p JobPlan,
}

/// Identifies a job in an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JobId {
    /// The number of its plan, from [`next_id`].
    pub(crate) plan: u64,
    /// Index of the step.
    pub(crate) step: usize,
    /// Index of the job in the step.
    pub(crate) job: usize,
}

/// Everything that the plan of weights depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeightPlanKey {
    pub(crate) dtype: Dtype,
    /// Output channels.
    pub(crate) n: usize,
    /// Input channels.
    pub(crate) k: usize,
    pub(crate) devices: usize,
    pub(crate) options: PlanOptions,
}

impl WeightPlanKey {
    pub(crate) fn plan(&self) -> Result<WeightPlan, PlanError> {
        WeightPlan::new(self.dtype, self.n, self.k, self.devices, &self.options)
    }
}

impl Hash for WeightPlanKey {
    /// Leaves out the options, in which few questions differ.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.dtype, self.n, self.k, self.devices).hash(state);
    }
}

/// Everything that the plan of a matmul depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanKey {
    /// Weights with the same tiling share plans.
    pub(crate) weights: Arc<WeightPlan>,
    /// Rows of A.
    pub(crate) m: usize,
    pub(crate) options: Arc<PlanOptions>,
}

impl PlanKey {
    fn plan(&self) -> Result<Plan, PlanError> {
        Plan::new(&self.weights, self.m, &self.options)
    }
}

impl Hash for PlanKey {
    /// Leaves out the options, in which few questions differ.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.weights, self.m).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use test_support::assert_each_field_counts;

    use super::*;

    fn options() -> impl Strategy<Value = PlanOptions> {
        (1..3_usize, prop::option::of(1..3_usize)).prop_map(|(batch_rows, k_tile)| PlanOptions {
            batch_rows,
            k_tile,
            ..PlanOptions::default()
        })
    }

    fn weights() -> impl Strategy<Value = WeightPlanKey> {
        let dtypes = prop::sample::select(&Dtype::ALL[..]);
        let sizes = (1..3_usize, 1..3_usize, 1..3_usize);
        (dtypes, sizes, options()).prop_map(|(dtype, (n, k, devices), options)| WeightPlanKey {
            dtype,
            n,
            k,
            devices,
            options,
        })
    }

    fn matmuls() -> impl Strategy<Value = PlanKey> {
        let matmul = (1..3_usize, 1..3_usize, options());
        matmul.prop_map(|(n, m, options)| PlanKey {
            weights: WeightPlan::new(Dtype::Fp16, n, 1, 1, &PlanOptions::default())
                .unwrap()
                .into(),
            m,
            options: options.into(),
        })
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn questions_differ_in_each_field(
            weight_keys in [weights(), weights()],
            plan_keys in [matmuls(), matmuls()],
            numbers in [[0..2_usize, 0..2, 0..2], [0..2, 0..2, 0..2]],
        ) {
            let [one, other] = weight_keys;
            assert_each_field_counts!(WeightPlanKey { dtype, n, k, devices, options }, one, other);
            let [one, other] = plan_keys;
            assert_each_field_counts!(PlanKey { weights, m, options }, one, other);
            let [one, other] = numbers.map(|[plan, step, job]| JobId {
                plan: plan as u64,
                step,
                job,
            });
            assert_each_field_counts!(JobId { plan, step, job }, one, other);
        }
    }
}
