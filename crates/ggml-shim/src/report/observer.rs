// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observes the engine for the user: adds up modelled times for the statistics, and passes events
//! to the trace.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use npu_matmul::{Done, Dtype, Observer, Plan};
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
    pub(crate) machine: Machine,
    /// Modelled time of the NPU for all matmuls so far, one after the other, picoseconds.
    pub(crate) modelled_ps: AtomicU64,
    known: Mutex<LruCache<Size, u64>>,
    pub(crate) trace: Option<Trace>,
}

impl EngineObserver {
    /// Creates an observer of matmuls on this many cores of such a machine.
    pub(crate) fn new(cores: u32, mut machine: Machine, trace: Option<Trace>) -> Self {
        machine.chip.cores = cores;
        Self {
            machine,
            modelled_ps: AtomicU64::new(0),
            known: Mutex::new(LruCache::new(KEPT)),
            trace,
        }
    }

    fn predict(&self, plan: &Plan) -> u64 {
        let weights = &plan.weights;
        let size = (
            weights.dtype,
            [plan.m, weights.n, weights.k, weights.k_tile],
        );
        if let Some(time) = lock(&self.known).get(&size) {
            return *time;
        }
        // Not under the lock: the prediction counts every register of every program.
        let time = plan.predict(&self.machine).npu_ps;
        lock(&self.known).put(size, time);
        time
    }
}

impl Observer for EngineObserver {
    fn token(&self) -> u64 {
        trace::list_here()
    }

    fn planned(&self, _token: u64, plan: &Plan) {
        let time = self.predict(plan);
        // A total without an order to others: relaxed is enough.
        self.modelled_ps.fetch_add(time, Ordering::Relaxed);
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
        let observer = EngineObserver::new(3, Machine::RK3588.at_clock(1_000_000_000), None);
        assert_eq!(observer.machine.clock_hz, 1_000_000_000);
        let mut expected = 0;
        for m in [64, 64, 100] {
            let plan = Plan::new(&weights, m, &options).unwrap();
            observer.planned(0, &plan);
            expected += plan.predict(&observer.machine).npu_ps;
            assert_eq!(observer.modelled_ps.load(Ordering::Relaxed), expected);
        }
        assert_eq!(lock(&observer.known).len(), 2);
    }
}
