// SPDX-License-Identifier: MIT OR Apache-2.0
//! One job, from the plan to its end: buffers, programs, submission, wait.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rknpu_regcmd::{Binding, Iova, LinkedProgram};
use rocket_uapi::{Bo, Deadline, FinishedJob, FrozenBo, Job, PendingJob, ProgramBo};

use super::work::{MatrixId, Work};
use crate::counters::Counters;
use crate::emit;
use crate::engine::Engine;
use crate::error::{Error, JobFailure};
use crate::observe::{Activity, SubmittedJob};
use crate::plan::{Band, JobPlan, Step};
use crate::programs::{Addresses, JobPrograms};
use crate::weights::Weights;

/// How long to wait for a job. A job is planned for a fifth of the 500 ms
/// after which the kernel kills it, and queues behind those of others, which
/// have as long: this bound is for a kernel that never answers.
const JOB_WAIT: Duration = Duration::from_secs(30);

/// The same on the software model: on a slow host it takes far longer than an
/// NPU, and that is no error.
const MODEL_JOB_WAIT: Duration = Duration::from_secs(600);

/// Activations in a buffer of one device, for all jobs of a submission that
/// read the same.
pub(super) struct Input {
    matrix_id: MatrixId,
    band: Arc<Band>,
    bo: FrozenBo,
}

/// What happens on one device.
#[derive(Clone, Copy)]
pub(crate) struct OnDevice<'e> {
    pub(crate) engine: &'e Engine,
    pub(crate) device: usize,
    /// For the observer.
    pub(crate) token: u64,
}

impl OnDevice<'_> {
    /// Shows what began at `started` and has just ended.
    pub(crate) fn done(self, activity: Activity, started: Instant) {
        self.engine
            .watched()
            .done(self.token, Some(self.device), activity, started);
    }

    pub(crate) fn failed(self) -> impl Fn(rocket_uapi::Error) -> Error {
        Error::on_device(self.device)
    }

    /// The activations that `job` reads: those of an earlier job, or packed
    /// now.
    pub(super) fn input(
        self,
        work: &dyn Work<'_>,
        job: &JobPlan,
        inputs: &mut Vec<Input>,
    ) -> Result<FrozenBo, Error> {
        let matrix_id = work.matrix_id();
        let same = |input: &&Input| input.matrix_id == matrix_id && input.band == job.band;
        if let Some(found) = inputs.iter().find(same) {
            return Ok(found.bo.clone());
        }
        let bytes = job.band.activation_bytes;
        let buffers = self.engine.buffers(self.device);
        let mut bo = buffers.take(bytes).map_err(self.failed())?;
        let mut memory = bo.write(Deadline::FOREVER).map_err(self.failed())?;
        let from = Instant::now();
        work.pack(self.engine.clock(), &job.band, &mut memory);
        self.done(Activity::Pack { bytes }, from);
        memory.finish().map_err(self.failed())?;
        self.engine.count(&Counters {
            bytes_to_device: bytes as u64,
            ..Counters::default()
        });
        let bo = bo.freeze();
        inputs.push(Input {
            matrix_id,
            band: Arc::clone(&job.band),
            bo: bo.clone(),
        });
        Ok(bo)
    }

    /// A job of `step` that reads `a`.
    pub(super) fn build(
        self,
        weights: &Weights,
        step: &Step,
        job: &JobPlan,
        a: &FrozenBo,
    ) -> Result<Job, Error> {
        let buffers = self.engine.buffers(self.device);
        let c = buffers.take(job.output_bytes).map_err(self.failed())?;
        let made = Cell::new(0);
        let at = Addresses {
            activations: a.iova(),
            output: c.iova(),
        };
        let programs = weights.programs().get(job, at, || {
            let linked = link(weights, job, (a.iova(), a.len()), (c.iova(), c.len()))?;
            let bo = ProgramBo::new(buffers.device(), &linked).map_err(self.failed())?;
            made.set(bo.bo().len());
            Ok::<_, Error>(JobPrograms { linked, bo })
        })?;
        self.engine.count(&Counters {
            bytes_to_device: made.get() as u64,
            ..Counters::default()
        });
        self.engine.watched().submitting(&SubmittedJob {
            dtype: weights.dtype(),
            step,
            job,
            programs: &programs.linked,
        });
        let built = Job::builder(buffers.device())
            .program(&programs.bo)
            .reads(weights.buffer(job.block))
            .reads(a)
            .writes(c)
            .build();
        built.map_err(|error| {
            self.keep(error.reads, error.writes);
            Error::Build {
                device: self.device,
                source: error.refusal,
            }
        })
    }

    /// Hands jobs to the driver, all at once; keeps the buffers of those that it
    /// does not take.
    pub(super) fn submit(self, jobs: Vec<Job>) -> Result<Vec<PendingJob>, Error> {
        self.hand_over(jobs).map_err(|(error, jobs)| {
            self.discard(jobs);
            error
        })
    }

    /// Hands jobs to the driver, all at once. Those that it does not take come
    /// back.
    pub(crate) fn hand_over(self, jobs: Vec<Job>) -> Result<Vec<PendingJob>, (Error, Vec<Job>)> {
        let device = self.engine.buffers(self.device).device();
        let (from, count) = (Instant::now(), jobs.len());
        let submitted = device
            .submit(jobs)
            .map_err(|error| (self.failed()(error.source), error.jobs))?;
        self.done(Activity::Submit { jobs: count }, from);
        self.engine.clock().submitted(count);
        self.engine.count(&Counters {
            submits: 1,
            ..Counters::default()
        });
        Ok(submitted)
    }

    /// Waits for a job. The buffers of one that failed are kept.
    pub(super) fn wait(self, pending: PendingJob) -> Result<FinishedJob, Error> {
        match self.end_of(pending) {
            (done, Ok(())) => Ok(done),
            (done, Err(error)) => {
                self.keep(done.reads, done.writes);
                Err(error)
            }
        }
    }

    /// Waits for a job. Its buffers come back if it has ended, well or not.
    pub(crate) fn end_of(self, pending: PendingJob) -> (FinishedJob, Result<(), Error>) {
        let limit = match self.engine.buffers(self.device).is_model() {
            true => MODEL_JOB_WAIT,
            false => JOB_WAIT,
        };
        let clock = self.engine.clock();
        let from = Instant::now();
        let waited = {
            let _waiting = clock.waiting();
            pending.wait(Deadline::after(limit))
        };
        clock.ended();
        self.done(Activity::Wait, from);
        match waited {
            Ok(done) => (done, Ok(())),
            Err(error) => {
                let (source, buffers) = JobFailure::of(error, limit);
                let device = self.device;
                let error = Error::Job { device, source };
                (buffers.unwrap_or_default(), Err(error))
            }
        }
    }

    /// Keeps the buffers of jobs that were not submitted.
    pub(super) fn discard(self, jobs: Vec<Job>) {
        for job in jobs {
            let (reads, writes) = job.into_bos();
            self.keep(reads, writes);
        }
    }

    /// Keeps the buffers of a job for later ones.
    pub(super) fn keep(self, reads: Vec<Bo>, writes: Vec<Bo>) {
        for bo in reads.into_iter().chain(writes) {
            self.engine.buffers(self.device).put(bo);
        }
    }

    /// Keeps the buffers of activations that no job reads any more. A job that
    /// has not ended still has its own, which goes with it.
    pub(super) fn keep_inputs(self, inputs: Vec<Input>) {
        for input in inputs {
            if let Ok(bo) = input.bo.thaw() {
                self.engine.buffers(self.device).put(bo);
            }
        }
    }
}

/// The job's programs, with the addresses and lengths of A and C.
pub(crate) fn link(
    weights: &Weights,
    job: &JobPlan,
    a: (Iova, usize),
    c: (Iova, usize),
) -> Result<Vec<LinkedProgram>, Error> {
    let b = weights.buffer(job.block);
    let bind = |id, (iova, len)| Binding {
        id,
        iova,
        len: u32::try_from(len).unwrap_or(u32::MAX),
    };
    let bindings = [
        bind(emit::ACTIVATIONS, a),
        bind(emit::WEIGHTS, (b.iova(), b.len())),
        bind(emit::OUTPUT, c),
    ];
    emit::programs(job)?
        .iter()
        .map(|program| program.link(&bindings).map_err(Error::from))
        .collect()
}
