// SPDX-License-Identifier: MIT OR Apache-2.0
//! One job, from the plan to its result: buffers, programs, submission, wait.

use std::cell::Cell;
use std::time::Duration;

use rknpu_regcmd::{Binding, LinkedProgram};
use rocket_uapi::{Bo, Deadline, FinishedJob, Job, PendingJob, ProgramBo};

use super::{Collect, Product};
use crate::counters::Counters;
use crate::emit;
use crate::error::{Error, JobFailure};
use crate::observe::Submission;
use crate::pack::Format;
use crate::plan::{JobPlan, Step};
use crate::programs::JobPrograms;

/// How long to wait for a job. A job is planned for a fifth of the 500 ms
/// after which the kernel kills it, and queues behind few others; the software
/// model on a slow host takes far longer, and that is no error. This bound is
/// for a kernel that never answers.
const JOB_WAIT: Duration = Duration::from_secs(600);

/// A job that was submitted.
pub(super) struct InFlight {
    /// Index into the jobs of its step.
    index: usize,
    device: usize,
    /// One: what a submission of one job gives.
    pending: Vec<PendingJob>,
}

impl<F: Format, C: Collect> Product<'_, F, C> {
    /// Packs the activations, links the programs, and submits.
    pub(super) fn start_job(&self, step: &Step, index: usize) -> Result<InFlight, Error> {
        let job = &step.jobs[index];
        let device = job.device;
        let failed = Error::on_device(device);
        let buffers = self.engine.buffers(device);
        let mut a = buffers.take(job.band.activation_bytes).map_err(&failed)?;
        let mut memory = a.write(Deadline::FOREVER).map_err(&failed)?;
        self.pack(&job.band, &mut memory);
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
            bytes_to_device: (step.jobs[index].band.activation_bytes + made.get()) as u64,
            ..Counters::default()
        });
        Ok(InFlight {
            index,
            device,
            pending: submitted,
        })
    }

    /// The job's programs, with the addresses of its buffers.
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

    /// Waits for a job and adds its results up.
    pub(super) fn finish_job(
        &self,
        step: &Step,
        running: InFlight,
        out: &mut [C::Out],
    ) -> Result<(), Error> {
        let job = &step.jobs[running.index];
        for pending in running.pending {
            let done = self.wait(job.device, pending)?;
            for c in &done.writes {
                let memory = c
                    .read(Deadline::FOREVER)
                    .map_err(Error::on_device(job.device))?;
                self.unpack(job, &memory, out);
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
    pub(super) fn drain(&self, jobs: impl IntoIterator<Item = InFlight>) {
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
}
