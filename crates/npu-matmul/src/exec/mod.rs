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
//! job, `tiles` how matrices become buffers and buffers matrices, `collect`
//! what becomes of the numbers in an output tile.

mod collect;
mod job;
mod tiles;

use std::collections::VecDeque;

use rayon::prelude::*;

use crate::engine::Engine;
use crate::error::Error;
use crate::matrix::MatrixView;
use crate::pack::Format;
use crate::plan::{Plan, Step};
use crate::weights::Weights;
pub(crate) use collect::{Collect, Sums};
use job::InFlight;

/// Steps that are started and not finished: one computes while the CPU works
/// on the other.
pub(crate) const STEPS_IN_FLIGHT: usize = 2;

/// One product in progress. `F` is the format of A; `collect` makes the result
/// of what the NPU writes.
pub(crate) struct Product<'a, F: Format, C> {
    pub(crate) engine: &'a Engine,
    pub(crate) weights: &'a Weights,
    /// Of [`Partial::TILE_ROWS`](crate::unpack::Partial::TILE_ROWS) rows for
    /// each row of A.
    pub(crate) plan: Plan<'a>,
    pub(crate) a: MatrixView<'a, F::Host>,
    pub(crate) collect: C,
}

/// A step whose jobs were submitted.
struct Running {
    step: Step,
    jobs: Vec<InFlight>,
}

impl<F: Format, C: Collect> Product<'_, F, C> {
    /// Computes the product into `out`.
    pub(crate) fn run(&self, out: &mut [C::Out]) -> Result<(), Error> {
        let mut running = VecDeque::new();
        let result = self.run_steps(&mut running, out);
        // After an error, what still runs must end, and its buffers are kept.
        for step in running {
            self.drain(step.jobs);
        }
        result
    }

    fn run_steps(&self, running: &mut VecDeque<Running>, out: &mut [C::Out]) -> Result<(), Error> {
        for step in self.plan.steps() {
            if running.len() == STEPS_IN_FLIGHT
                && let Some(oldest) = running.pop_front()
            {
                self.finish(oldest, out)?;
            }
            running.push_back(self.start(step)?);
        }
        while let Some(oldest) = running.pop_front() {
            self.finish(oldest, out)?;
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
    fn finish(&self, running: Running, out: &mut [C::Out]) -> Result<(), Error> {
        let Running { step, jobs } = running;
        let mut jobs = jobs.into_iter();
        let result = jobs.try_for_each(|job| self.finish_job(&step, job, out));
        self.drain(jobs);
        result
    }
}
