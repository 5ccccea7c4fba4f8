// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a plan: pack, submit to all devices, wait, unpack and add up.
//!
//! ```text
//! for each step:
//!     for each device:  pack A -> link programs -> submit      (start)
//!     for each device:  wait -> unpack C, add up, finish rows  (finish)
//! ```
//!
//! One step is started before the one before it is finished, so that the CPU
//! packs and unpacks while the NPU computes. `job` has what happens to one
//! job, `tiles` how matrices become buffers and buffers matrices.

mod job;
mod tiles;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use crate::engine::Engine;
use crate::error::Error;
use crate::matrix::MatrixView;
use crate::pack::Format;
use crate::plan::{Plan, Step};
use crate::unpack::Partial;
use crate::weights::Weights;
use job::InFlight;

/// Steps that are started and not finished: one computes while the CPU works
/// on the other.
pub(crate) const STEPS_IN_FLIGHT: usize = 2;

/// Called when a part of a row of the result is complete: row, channels, and
/// their sums, which it may change.
pub(crate) trait FinishRow<S>: Fn(usize, Range<usize>, &mut [S]) + Sync {}

impl<S, F: Fn(usize, Range<usize>, &mut [S]) + Sync> FinishRow<S> for F {}

/// One product in progress. `F` is the format of A and B, `T` that of the
/// partial results.
pub(crate) struct Product<'a, F: Format, T: Partial> {
    pub(crate) engine: &'a Engine,
    pub(crate) weights: &'a Weights,
    pub(crate) plan: Plan<'a>,
    pub(crate) a: MatrixView<'a, F::Host>,
    pub(crate) partial: PhantomData<fn() -> T>,
}

/// A step whose jobs were submitted.
struct Running {
    step: Step,
    jobs: Vec<InFlight>,
}

impl<F, T> Product<'_, F, T>
where
    F: Format + Sync,
    T: Partial,
    T::Sum: Send,
{
    /// Computes the product into `out`.
    pub(crate) fn run(
        &self,
        out: &mut [T::Sum],
        finish_row: impl FinishRow<T::Sum>,
    ) -> Result<(), Error> {
        let mut running = VecDeque::new();
        let result = self.run_steps(&mut running, out, &finish_row);
        // After an error, what still runs must end, and its buffers are kept.
        for step in running {
            self.drain(step.jobs);
        }
        result
    }

    fn run_steps(
        &self,
        running: &mut VecDeque<Running>,
        out: &mut [T::Sum],
        finish_row: &impl FinishRow<T::Sum>,
    ) -> Result<(), Error> {
        for step in self.plan.steps() {
            if running.len() == STEPS_IN_FLIGHT
                && let Some(oldest) = running.pop_front()
            {
                self.finish(oldest, out, finish_row)?;
            }
            running.push_back(self.start(step)?);
        }
        while let Some(oldest) = running.pop_front() {
            self.finish(oldest, out, finish_row)?;
        }
        Ok(())
    }

    fn start(&self, step: Step) -> Result<Running, Error> {
        let start = |index| self.start_job(&step, index);
        let started: Vec<_> = match step.jobs.len() {
            1 => vec![start(0)],
            several => (0..several).into_par_iter().map(start).collect(),
        };
        let mut jobs = Vec::with_capacity(started.len());
        let mut failure = None;
        for job in started {
            match job {
                Ok(job) => jobs.push(job),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            None => Ok(Running { step, jobs }),
            Some(error) => {
                self.drain(jobs);
                Err(error)
            }
        }
    }

    /// Waits for the jobs of a step and adds their results up; waits for all of
    /// them even if one fails.
    fn finish(
        &self,
        running: Running,
        out: &mut [T::Sum],
        finish_row: &impl FinishRow<T::Sum>,
    ) -> Result<(), Error> {
        let Running { step, jobs } = running;
        let mut jobs = jobs.into_iter();
        let result = jobs.try_for_each(|job| self.finish_job(&step, job, out, finish_row));
        self.drain(jobs);
        result
    }
}
