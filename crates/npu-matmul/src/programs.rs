// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that are used again.
//!
//! A program names the addresses of its buffers. Since buffers are used again,
//! the next product of the same shape with the same weights most often needs
//! the very programs of the last one; then none is emitted, linked, or copied
//! to the device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rknpu_regcmd::{Iova, LinkedProgram, MatmulType};
use rocket_uapi::ProgramBo;

use crate::plan::{JobPlan, TaskPlan};

/// Jobs whose programs are kept for each set of weights: a prompt in several
/// batches, and the last shorter one, on a handful of devices. A job of few
/// tasks costs a page.
pub(crate) const KEPT: usize = 32;

/// The programs of one job.
#[derive(Debug)]
pub(crate) struct JobPrograms {
    /// As they were submitted.
    pub(crate) linked: Vec<LinkedProgram>,
    /// Where the device finds them.
    pub(crate) bo: ProgramBo,
}

/// All that the programs of a job depend on, for one set of weights.
#[derive(PartialEq, Eq)]
struct Key {
    ty: MatmulType,
    block: usize,
    activations: Iova,
    output: Iova,
    tasks: Vec<TaskPlan>,
}

/// Where a job's own buffers are.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) activations: Iova,
    pub(crate) output: Iova,
}

/// The programs of the latest jobs with one set of weights.
#[derive(Default)]
pub(crate) struct ProgramCache(Mutex<VecDeque<(Key, Arc<JobPrograms>)>>);

impl ProgramCache {
    /// The programs of `job` for buffers at these addresses; made by `make` if
    /// they are not there.
    pub(crate) fn get<E>(
        &self,
        job: &JobPlan,
        at: Addresses,
        make: impl FnOnce() -> Result<JobPrograms, E>,
    ) -> Result<Arc<JobPrograms>, E> {
        let fits = |key: &Key| {
            key.activations == at.activations
                && key.output == at.output
                && key.ty == job.ty
                && key.block == job.block
                && key.tasks == job.tasks
        };
        let found = self.with(|kept| {
            let (_, programs) = kept.iter().find(|(key, _)| fits(key))?;
            Some(Arc::clone(programs))
        });
        if let Some(programs) = found {
            return Ok(programs);
        }
        // Made outside the lock: it takes system calls. Another thread cannot
        // make the same ones meanwhile, since this one owns the buffers.
        let programs = Arc::new(make()?);
        let key = Key {
            ty: job.ty,
            block: job.block,
            activations: at.activations,
            output: at.output,
            tasks: job.tasks.clone(),
        };
        let evicted = self.with(|kept| {
            kept.push_back((key, Arc::clone(&programs)));
            (kept.len() > KEPT).then(|| kept.pop_front())
        });
        // Freed outside the lock.
        drop(evicted);
        Ok(programs)
    }

    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<(Key, Arc<JobPrograms>)>) -> R) -> R {
        // No critical section leaves the queue half changed, panic or not.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ProgramCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.with(|kept| kept.len());
        f.debug_struct("ProgramCache").field("kept", &kept).finish()
    }
}
