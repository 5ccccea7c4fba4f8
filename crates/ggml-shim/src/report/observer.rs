// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observes the engine for the user: adds up modelled times for the statistics, and passes events
//! to the trace.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use npu_matmul::profile::CostSide;
use npu_matmul::{Done, Dtype, Observer, Plan, Profile};
use rknpu_regcmd::timing::Machine;

use crate::ggml::shared::lock;
use crate::report::trace::{self, Trace};

/// Number of matmul sizes whose modelled times are cached. A model has a handful of matrices, but
/// prompts may have any number of rows.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// What the modelled time of a matmul depends on: its type, M, N, K and K tile.
type Size = (Dtype, [usize; 4]);

#[derive(Debug)]
pub(crate) struct EngineObserver {
    /// The machine by the sides of its costs: the likely one, and the upper bound of its speed.
    pub(crate) machines: [Machine; 2],
    /// Modelled time of the NPU for all matmuls so far, one after the other, picoseconds, on each of
    /// the machines.
    pub(crate) modelled_ps: [AtomicU64; 2],
    known: Mutex<LruCache<Size, [u64; 2]>>,
    pub(crate) trace: Option<Trace>,
}

impl EngineObserver {
    /// Creates an observer of matmuls on this many cores of the profile's machine.
    pub(crate) fn new(cores: u32, profile: &Profile, trace: Option<Trace>) -> Self {
        let machines = [CostSide::Likely, CostSide::Upper].map(|side| {
            let mut machine = profile.on(side).machine;
            machine.chip.cores = cores;
            machine
        });
        Self {
            machines,
            modelled_ps: Default::default(),
            known: Mutex::new(LruCache::new(KEPT)),
            trace,
        }
    }

    fn predict(&self, plan: &Plan) -> [u64; 2] {
        let weights = &plan.weights;
        let size = (
            weights.dtype,
            [plan.m, weights.n, weights.k, weights.k_tile],
        );
        if let Some(times) = lock(&self.known).get(&size) {
            return *times;
        }
        // Not under the lock: the prediction counts every register of every program.
        let times = self.machines.map(|machine| plan.predict(&machine).npu_ps);
        lock(&self.known).put(size, times);
        times
    }
}

impl Observer for EngineObserver {
    fn token(&self) -> u64 {
        trace::list_here()
    }

    fn planned(&self, _token: u64, plan: &Plan) {
        for (sum, time) in self.modelled_ps.iter().zip(self.predict(plan)) {
            // A total without an order to others: relaxed is enough.
            sum.fetch_add(time, Ordering::Relaxed);
        }
    }

    fn done(&self, done: &Done) {
        if let Some(trace) = &self.trace {
            trace.done(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use npu_matmul::PlanOptions;
    use npu_matmul::plan::WeightPlan;

    use super::*;

    #[test]
    fn each_matmul_adds_its_modelled_time() {
        let options = PlanOptions::default();
        let weights = WeightPlan::new(Dtype::Int8, 64, 256, 3, &options).unwrap();
        let profile = Profile::built_in().at_clock(1_000_000_000);
        let observer = EngineObserver::new(3, &profile, None);
        let machines = observer.machines;
        assert!(machines.iter().all(|one| one.clock_hz == 1_000_000_000));
        let mut expected = [0; 2];
        for m in [64, 64, 100] {
            let plan = Plan::new(&weights, m, &options).unwrap();
            observer.planned(0, &plan);
            for (sum, machine) in expected.iter_mut().zip(&machines) {
                *sum += plan.predict(machine).npu_ps;
            }
            let sums = (observer.modelled_ps.iter()).map(|sum| sum.load(Ordering::Relaxed));
            assert!(sums.eq(expected));
        }
        assert!(expected[0] > expected[1]);
        assert_eq!(lock(&observer.known).len(), 2);
    }
}
