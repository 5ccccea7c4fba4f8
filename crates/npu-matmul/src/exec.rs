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
//! packs and unpacks while the NPU computes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

use rayon::prelude::*;
use rknpu_regcmd::{Binding, LinkedProgram};
use rocket_uapi::{Bo, Deadline, FinishedJob, Job, PendingJob, ProgramBo};

use crate::counters::Counters;
use crate::emit;
use crate::engine::Engine;
use crate::error::{Error, JobFailure};
use crate::layout;
use crate::matrix::MatrixView;
use crate::observe::Submission;
use crate::pack::{Format, pack_activation};
use crate::plan::{JobPlan, Plan, Step};
use crate::programs::JobPrograms;
use crate::unpack::{Mode, Partial, unpack_row};
use crate::weights::Weights;

/// Steps that are started and not finished: one computes while the CPU works
/// on the other.
const STEPS_IN_FLIGHT: usize = 2;

/// How long to wait for a job. A job is planned for a fifth of the 500 ms
/// after which the kernel kills it, and queues behind few others; the software
/// model on a slow host takes far longer, and that is no error. This bound is
/// for a kernel that never answers.
const JOB_WAIT: Duration = Duration::from_secs(600);

/// Rows that one thread unpacks at a time: those that share cache lines, four
/// atoms of 16 bytes each.
const ROWS_PER_CHUNK: usize = 4;

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

/// A job that was submitted.
struct InFlight {
    /// Index into the jobs of its step.
    index: usize,
    device: usize,
    /// One: what a submission of one job gives.
    pending: Vec<PendingJob>,
}

impl<F, T> Product<'_, F, T>
where
    F: Format + Sync,
    T: Partial,
    T::Sum: Send,
{
    /// Computes the product into `out`. When a part of a row is complete,
    /// `finish_row(row, channels, part)` is called for it.
    pub(crate) fn run<E>(&self, out: &mut [T::Sum], finish_row: E) -> Result<(), Error>
    where
        E: Fn(usize, Range<usize>, &mut [T::Sum]) + Sync,
    {
        let mut running = VecDeque::new();
        let result = self.run_steps(&mut running, out, &finish_row);
        // After an error, what still runs must end, and its buffers are kept.
        for step in running {
            self.drain(step.jobs);
        }
        result
    }

    fn run_steps<E>(
        &self,
        running: &mut VecDeque<Running>,
        out: &mut [T::Sum],
        finish_row: &E,
    ) -> Result<(), Error>
    where
        E: Fn(usize, Range<usize>, &mut [T::Sum]) + Sync,
    {
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

    fn start_job(&self, step: &Step, index: usize) -> Result<InFlight, Error> {
        let job = &step.jobs[index];
        let device = job.device;
        let failed = Error::on_device(device);
        let buffers = self.engine.buffers(device);
        let mut a = buffers.take(step.activation_bytes).map_err(&failed)?;
        let mut memory = a.write(Deadline::FOREVER).map_err(&failed)?;
        self.pack(step, &mut memory);
        memory.finish().map_err(&failed)?;
        let c = buffers.take(job.output_bytes).map_err(&failed)?;

        let made = Cell::new(0);
        let programs = self.weights.programs().get(job, a.iova(), c.iova(), || {
            let linked = self.link(job, &a, &c)?;
            let bo = ProgramBo::new(buffers.device(), &linked).map_err(&failed)?;
            made.set(bo.bo().len());
            Ok::<_, Error>(JobPrograms { linked, bo })
        })?;
        self.engine.observe(&Submission {
            precision: self.weights.precision(),
            step,
            job,
            programs: &programs.linked,
        });
        let job = Job::builder(buffers.device())
            .program(&programs.bo)
            .reads(self.weights.buffer(job.block))
            .reads_owned(a)
            .writes(c)
            .build()
            .map_err(|error| {
                self.keep(device, error.reads, error.writes);
                let source = error.refusal;
                Error::Build { device, source }
            })?;
        let submitted = buffers.device().submit(vec![job]).map_err(|error| {
            for job in error.jobs {
                let (reads, writes) = job.into_bos();
                self.keep(device, reads, writes);
            }
            failed(error.source)
        })?;
        self.engine.count(&Counters {
            bytes_to_device: (step.activation_bytes + made.get()) as u64,
            ..Counters::default()
        });
        Ok(InFlight {
            index,
            device,
            pending: submitted,
        })
    }

    /// The tiles of A, into the activation buffer.
    fn pack(&self, step: &Step, memory: &mut [u8]) {
        let mut rest = memory;
        let mut tiles = Vec::with_capacity(step.activations.len());
        for tile in &step.activations {
            let bytes = layout::activation_bytes(F::PRECISION, tile.padded, tile.k_tile.padded);
            let (memory, behind) = rest.split_at_mut(bytes);
            tiles.push((tile, memory));
            rest = behind;
        }
        tiles.into_par_iter().for_each(|(tile, memory)| {
            let block = self.a.block(tile.rows.clone(), tile.k_tile.k.clone());
            pack_activation::<F>(block, tile.padded, memory);
        });
    }

    fn link(&self, job: &JobPlan, a: &Bo, c: &Bo) -> Result<Vec<LinkedProgram>, Error> {
        let weights = self.weights.buffer(job.block);
        let bindings = [
            (emit::ACTIVATIONS, a.iova(), a.len()),
            (emit::WEIGHTS, weights.iova(), weights.len()),
            (emit::OUTPUT, c.iova(), c.len()),
        ]
        .map(|(id, iova, len)| Binding {
            id,
            iova,
            len: u32::try_from(len).unwrap_or(u32::MAX),
        });
        emit::programs(self.weights.precision(), job)?
            .iter()
            .map(|program| program.link(&bindings).map_err(Error::from))
            .collect()
    }

    /// Waits for the jobs of a step and adds their results up; waits for all of
    /// them even if one fails.
    fn finish<E>(&self, running: Running, out: &mut [T::Sum], finish_row: &E) -> Result<(), Error>
    where
        E: Fn(usize, Range<usize>, &mut [T::Sum]) + Sync,
    {
        let Running { step, jobs } = running;
        let mut jobs = jobs.into_iter();
        let result = jobs.try_for_each(|job| self.finish_job(&step, job, out, finish_row));
        self.drain(jobs);
        result
    }

    fn finish_job<E>(
        &self,
        step: &Step,
        running: InFlight,
        out: &mut [T::Sum],
        finish_row: &E,
    ) -> Result<(), Error>
    where
        E: Fn(usize, Range<usize>, &mut [T::Sum]) + Sync,
    {
        let job = &step.jobs[running.index];
        for pending in running.pending {
            let done = self.wait(job.device, pending)?;
            for c in &done.writes {
                let memory = c
                    .read(Deadline::FOREVER)
                    .map_err(Error::on_device(job.device))?;
                self.unpack(step, job, &memory, out, finish_row);
            }
            self.keep(job.device, done.reads, done.writes);
        }
        self.engine.count(&Counters {
            jobs: 1,
            tasks: job.tasks.len() as u64,
            bytes_from_device: job.output_bytes as u64,
            ..Counters::default()
        });
        Ok(())
    }

    /// Waits for a job. The buffers of one that failed are kept.
    fn wait(&self, device: usize, pending: PendingJob) -> Result<FinishedJob, Error> {
        pending.wait(Deadline::after(JOB_WAIT)).map_err(|error| {
            let (source, buffers) = JobFailure::of(error, JOB_WAIT);
            if let Some(done) = buffers {
                self.keep(device, done.reads, done.writes);
            }
            Error::Job { device, source }
        })
    }

    /// Waits for jobs whose results nobody wants any more. Their errors would
    /// only hide the one that made them unwanted.
    fn drain(&self, jobs: impl IntoIterator<Item = InFlight>) {
        for job in jobs {
            for pending in job.pending {
                match self.wait(job.device, pending) {
                    Ok(done) => self.keep(job.device, done.reads, done.writes),
                    Err(error) => tracing::debug!(%error, "one more job failed"),
                }
            }
        }
    }

    /// Keeps the buffers of a job for later ones.
    fn keep(&self, device: usize, reads: Vec<Bo>, writes: Vec<Bo>) {
        for bo in reads.into_iter().chain(writes) {
            self.engine.buffers(device).put(bo);
        }
    }

    /// Adds the tiles of C of one job up into rows of `out`.
    fn unpack<E>(
        &self,
        step: &Step,
        job: &JobPlan,
        memory: &[u8],
        out: &mut [T::Sum],
        finish_row: &E,
    ) where
        E: Fn(usize, Range<usize>, &mut [T::Sum]) + Sync,
    {
        let n = self.weights.n();
        let tiles = step.activations.len();
        let depth = step.k_tiles.len();
        let complete =
            step.k_tiles.last().map(|k| k.index + 1) == Some(self.plan.weights.k_tile_count());
        out[step.rows.start * n..step.rows.end * n]
            .par_chunks_mut(n)
            .with_min_len(ROWS_PER_CHUNK)
            .enumerate()
            .for_each(|(index, row)| {
                let (row_tile, m) = (index / step.row_tile, index % step.row_tile);
                for at in row_tile * depth..(row_tile + 1) * depth {
                    let a = &step.activations[at];
                    let mode = if a.k_tile.index == 0 {
                        Mode::Store
                    } else {
                        Mode::Add
                    };
                    for task in job.tasks_of(tiles, at) {
                        // The tile begins here; its rows end where the row does.
                        let tile = &memory[task.c as usize..];
                        unpack_row::<T>(tile, a.padded, m, mode, &mut row[task.n.clone()]);
                    }
                }
                if complete {
                    let part = &mut row[job.n.clone()];
                    finish_row(step.rows.start + index, job.n.clone(), part);
                }
            });
    }
}
