// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches of planned matmuls and of the programs of their jobs.
//!
//! Plans depend on shapes only; weights of one shape share them. Programs contain buffer addresses.
//! Buffers are reused, so the next matmul with the same weights and row count mostly needs exactly
//! the programs of the last one: nothing is planned, emitted, linked or copied to the device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lru::LruCache;
use rknpu_regcmd::{Iova, LinkedProgram, ProgramOptions};
use rocket_uapi::{Bo, ProgramBo};

use crate::dtype::Results;
use crate::plan::{JobPlan, Plan, Step, WeightPlan};
use crate::sync::lock;

/// Bytes of programs to keep, on all devices together: those of a prompt in several batches, and of
/// the last shorter batch, for all matrices of a model.
pub(crate) const PROGRAM_BYTES_KEPT: u64 = 256 << 20;

/// Jobs whose programs are kept. Each has a buffer object, which is a mapping.
pub(crate) const PROGRAMS_KEPT: usize = 8192;

/// Limits of objects kept for reuse.
pub(crate) struct IdleLimits {
    pub(crate) bytes: usize,
    pub(crate) buffers: usize,
}

/// Limits of idle program buffers on a device. Only programs reuse them: programs contain buffer
/// addresses, so buffers should keep their roles.
pub(crate) const IDLE_PROGRAMS: IdleLimits = IdleLimits {
    bytes: 16 << 20,
    buffers: 64,
};

/// A planned matmul: weights of one shape with a number of rows.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Identifies its programs in the cache.
    pub(crate) id: u64,
    /// The tiling.
    pub(crate) plan: Plan,
    /// The steps, in order.
    pub(crate) steps: Vec<Step>,
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
        Self {
            id: next_id(),
            steps: plan.steps().collect(),
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

/// The programs of one job.
#[derive(Debug)]
pub(crate) struct JobPrograms {
    /// The programs as they were submitted.
    pub(crate) linked: Vec<LinkedProgram>,
    /// The buffer object that holds them.
    pub(crate) bo: ProgramBo,
}

/// Everything that the programs of a job depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramsKey {
    /// The number of its plan, from [`next_id`].
    pub(crate) plan: u64,
    pub(crate) job: JobIndex,
    /// Addresses of activations, weights and output.
    pub(crate) addresses: [Iova; 3],
}

/// The programs of the latest jobs on one device.
pub(crate) struct ProgramCache {
    kept: Mutex<KeptPrograms>,
    /// Limits: bytes and jobs.
    most: (u64, usize),
}

struct KeptPrograms {
    programs: LruCache<ProgramsKey, Arc<JobPrograms>>,
    bytes: u64,
}

impl ProgramCache {
    /// An empty cache for one of `devices` devices, which share the limits.
    pub(crate) fn new(devices: usize) -> Self {
        let share = devices.max(1);
        Self {
            kept: Mutex::new(KeptPrograms {
                programs: LruCache::unbounded(),
                bytes: 0,
            }),
            // Idle buffers count toward the limits, too.
            most: (
                (PROGRAM_BYTES_KEPT / share as u64).saturating_sub(IDLE_PROGRAMS.bytes as u64),
                (PROGRAMS_KEPT / share).saturating_sub(IDLE_PROGRAMS.buffers),
            ),
        }
    }

    /// The programs of a job; `make` makes them if they are not in the cache. `recycle` gets the
    /// buffer objects of evicted programs that no job uses.
    pub(crate) fn get_or_make<E>(
        &self,
        key: ProgramsKey,
        make: impl FnOnce() -> Result<JobPrograms, E>,
        recycle: impl Fn(Bo),
    ) -> Result<Arc<JobPrograms>, E> {
        if let Some(found) = lock(&self.kept).programs.get(&key) {
            return Ok(Arc::clone(found));
        }
        // No other thread can make the same programs meanwhile: this thread owns the buffers.
        let made = Arc::new(make()?);
        let evicted = lock(&self.kept).insert(key, Arc::clone(&made), self.most);
        let unused = evicted.into_iter().filter_map(Arc::into_inner);
        (unused.filter_map(|programs| programs.bo.into_bo())).for_each(recycle);
        Ok(made)
    }
}

impl KeptPrograms {
    /// Adds programs; returns the evicted ones.
    fn insert(
        &mut self,
        key: ProgramsKey,
        made: Arc<JobPrograms>,
        most: (u64, usize),
    ) -> Vec<Arc<JobPrograms>> {
        let mut evicted = Vec::new();
        self.bytes += made.bytes();
        if let Some((_, replaced)) = self.programs.push(key, made) {
            self.bytes -= replaced.bytes();
            evicted.push(replaced);
        }
        // The new entry stays, whatever its size.
        while self.programs.len() > 1 && (self.bytes > most.0 || self.programs.len() > most.1) {
            let Some((_, oldest)) = self.programs.pop_lru() else {
                break;
            };
            self.bytes -= oldest.bytes();
            evicted.push(oldest);
        }
        evicted
    }
}

impl JobPrograms {
    fn bytes(&self) -> u64 {
        self.bo.bo().len() as u64
    }
}
