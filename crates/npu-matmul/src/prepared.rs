// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products that are planned once, and the programs of their jobs.
//!
//! A program names the addresses of its buffers. Since buffers are used again, the
//! next product of the same rows with the same weights most often needs the very
//! programs of the last one; then nothing is planned, emitted, linked, or copied to
//! the device.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rknpu_regcmd::{Iova, LinkedProgram};
use rocket_uapi::ProgramBo;

use crate::cache::LruMap;
use crate::dtype::Results;
use crate::plan::{JobPlan, Plan, Step};

/// Numbers of rows of which the plans are kept for each set of weights: a prompt's
/// batches, and the last shorter one.
const PLANS_KEPT: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Jobs whose programs are kept for each set of weights: those of a prompt in several
/// batches, and of the last shorter one, on a handful of devices. A job of few tasks
/// costs a page.
pub(crate) const PROGRAMS_KEPT: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Distinguishes what was prepared, so that programs are of one plan.
static NEXT_PREPARED: AtomicU64 = AtomicU64::new(0);

/// The product of given weights and rows, planned to the last offset.
#[derive(Debug)]
pub(crate) struct Prepared {
    id: u64,
    /// How it is cut.
    pub(crate) plan: Plan,
    /// What is computed, in order.
    pub(crate) steps: Vec<Step>,
}

impl Prepared {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            // Only uniqueness matters.
            id: NEXT_PREPARED.fetch_add(1, Ordering::Relaxed),
            steps: plan.steps().collect(),
            plan,
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

/// The programs of one job.
#[derive(Debug)]
pub(crate) struct JobPrograms {
    /// As they were submitted.
    pub(crate) linked: Vec<LinkedProgram>,
    /// Where the device finds them.
    pub(crate) bo: ProgramBo,
}

/// All that the programs of a job depend on, for one set of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ProgramsKey {
    prepared: u64,
    job: JobIndex,
    activations: u32,
    output: u32,
}

/// What is kept of the latest products with one set of weights.
#[derive(Debug)]
pub(crate) struct PreparedCache {
    plans: LruMap<(usize, Results), Arc<Prepared>>,
    programs: LruMap<ProgramsKey, Arc<JobPrograms>>,
}

impl PreparedCache {
    /// The product of `m` rows with such results; planned by `plan` if it is not there.
    pub(crate) fn product<E>(
        &self,
        m: usize,
        results: Results,
        plan: impl FnOnce() -> Result<Plan, E>,
    ) -> Result<Arc<Prepared>, E> {
        let make = || Ok(Arc::new(Prepared::new(plan()?)));
        self.plans.get_or_make((m, results), make)
    }

    /// The programs of a job for activations and output at these addresses; made by
    /// `make` if they are not there.
    pub(crate) fn programs<E>(
        &self,
        prepared: &Prepared,
        job: JobIndex,
        [activations, output]: [Iova; 2],
        make: impl FnOnce() -> Result<JobPrograms, E>,
    ) -> Result<Arc<JobPrograms>, E> {
        let key = ProgramsKey {
            prepared: prepared.id,
            job,
            activations: activations.0,
            output: output.0,
        };
        // Another thread cannot make the same ones meanwhile, since this one owns the
        // buffers.
        self.programs.get_or_make(key, || Ok(Arc::new(make()?)))
    }
}

impl Default for PreparedCache {
    fn default() -> Self {
        Self {
            plans: LruMap::new(PLANS_KEPT),
            programs: LruMap::new(PROGRAMS_KEPT),
        }
    }
}
