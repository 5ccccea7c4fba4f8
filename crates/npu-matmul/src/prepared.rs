// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products that are planned once, and the programs of their jobs.
//!
//! Plans depend on shapes alone, and weights of one shape share them. A program names
//! the addresses of its buffers. Since buffers are used again, the next product of the
//! same rows with the same weights most often needs the very programs of the last one;
//! then nothing is planned, emitted, linked, or copied to the device.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use rknpu_regcmd::{Iova, LinkedProgram, ProgramOptions};
use rocket_uapi::{Bo, ProgramBo};

use crate::cache::LruMap;
use crate::dtype::Results;
use crate::plan::{JobPlan, Plan, Step, WeightPlan};

/// Products of which the plans are kept: a model's matrices have a few shapes, but
/// experts get any number of rows.
const PRODUCTS_KEPT: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// Bytes of programs that are kept, on all devices together: those of a prompt in
/// several batches, and of the last shorter one, with all matrices of a model.
pub(crate) const PROGRAM_BYTES_KEPT: u64 = 256 << 20;

/// Jobs of which they are kept: each has a buffer object, which is a mapping.
pub(crate) const PROGRAMS_KEPT: usize = 8192;

/// Most that waits for its next use.
pub(crate) struct IdleLimits {
    pub(crate) bytes: usize,
    pub(crate) buffers: usize,
}

/// Buffers of programs that a device keeps for later. Others do not get them: programs name the
/// addresses of buffers, and stay where these are used in the same roles.
pub(crate) const IDLE_PROGRAMS: IdleLimits = IdleLimits {
    bytes: 16 << 20,
    buffers: 64,
};

/// Distinguishes what was prepared, so that programs are of one plan.
static NEXT_PREPARED: AtomicU64 = AtomicU64::new(0);

/// A product of weights of one shape and a number of rows, planned to the last offset.
#[derive(Debug)]
pub(crate) struct Prepared {
    id: u64,
    /// How it is cut.
    pub(crate) plan: Plan,
    /// What is computed, in order.
    pub(crate) steps: Vec<Step>,
    /// Whether the kinds of all its tasks were checked, if this engine does that.
    pub(crate) is_checked: AtomicBool,
}

/// A number that nothing else which is prepared has.
pub(crate) fn next_id() -> u64 {
    // Only uniqueness matters.
    NEXT_PREPARED.fetch_add(1, Ordering::Relaxed)
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

    /// A job of it.
    pub(crate) fn job(&self, at: JobIndex) -> &JobPlan {
        &self.steps[at.step].jobs[at.job]
    }
}

/// Which job of a prepared product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobIndex {
    /// Index of the step.
    pub(crate) step: usize,
    /// Index in the step.
    pub(crate) job: usize,
}

/// All that the plan of a product depends on, in one engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProductKey {
    /// Weights that are cut alike have the same plans.
    pub(crate) weights: Arc<WeightPlan>,
    /// Rows of A.
    pub(crate) m: usize,
    /// What C is.
    pub(crate) results: Results,
    /// How programs are made.
    pub(crate) program: ProgramOptions,
}

/// Products that were planned last, whatever their weights.
pub(crate) type ProductCache = LruMap<ProductKey, Arc<Prepared>>;

impl ProductCache {
    /// None yet.
    pub(crate) fn empty() -> Self {
        Self::new(PRODUCTS_KEPT)
    }
}

/// The programs of one job.
#[derive(Debug)]
pub(crate) struct JobPrograms {
    /// As they were submitted.
    pub(crate) linked: Vec<LinkedProgram>,
    /// Where the device finds them.
    pub(crate) bo: ProgramBo,
}

/// All that the programs of a job depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramsKey {
    prepared: u64,
    job: JobIndex,
    /// Of activations, weights and output.
    addresses: [Iova; 3],
}

impl ProgramsKey {
    /// Of a job whose activations, weights and output are at these addresses of its
    /// device.
    pub(crate) const fn new(prepared: &Prepared, job: JobIndex, addresses: [Iova; 3]) -> Self {
        Self::of(prepared.id, job, addresses)
    }

    /// The same of what has this [`next_id`].
    pub(crate) const fn of(prepared: u64, job: JobIndex, addresses: [Iova; 3]) -> Self {
        Self {
            prepared,
            job,
            addresses,
        }
    }
}

/// The programs of the latest jobs of one device.
pub(crate) struct ProgramCache {
    kept: Mutex<KeptPrograms>,
    /// Most bytes and jobs.
    most: (u64, usize),
}

struct KeptPrograms {
    programs: LruCache<ProgramsKey, Arc<JobPrograms>>,
    bytes: u64,
}

impl ProgramCache {
    /// One of so many devices, which share the bounds.
    pub(crate) fn new(devices: usize) -> Self {
        let share = devices.max(1);
        Self {
            kept: Mutex::new(KeptPrograms {
                programs: LruCache::unbounded(),
                bytes: 0,
            }),
            // Those that wait for their next use are within the bounds, too.
            most: (
                (PROGRAM_BYTES_KEPT / share as u64).saturating_sub(IDLE_PROGRAMS.bytes as u64),
                (PROGRAMS_KEPT / share).saturating_sub(IDLE_PROGRAMS.buffers),
            ),
        }
    }

    /// The programs of a job; made by `make` if they are not there. `recycle` gets the
    /// buffer objects of those that make room, if no job has them.
    pub(crate) fn get_or_make<E>(
        &self,
        key: ProgramsKey,
        make: impl FnOnce() -> Result<JobPrograms, E>,
        recycle: impl Fn(Bo),
    ) -> Result<Arc<JobPrograms>, E> {
        if let Some(found) = self.lock().programs.get(&key) {
            return Ok(Arc::clone(found));
        }
        // Another thread cannot make the same ones meanwhile, since this one owns the
        // buffers.
        let made = Arc::new(make()?);
        let evicted = self.lock().insert(key, Arc::clone(&made), self.most);
        let unused = evicted.into_iter().filter_map(Arc::into_inner);
        (unused.filter_map(|programs| programs.bo.into_bo())).for_each(recycle);
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, KeptPrograms> {
        // A panic leaves a count that is off by one job at most.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptPrograms {
    /// Returns those that are no longer kept.
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
        // The one that was made stays, however large it is.
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
