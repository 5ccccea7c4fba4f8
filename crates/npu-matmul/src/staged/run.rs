// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a staged product: SUBMIT and waits, and nothing else.

use std::time::Instant;

use rocket_uapi::{Job, PendingJob};

use super::Staged;
use crate::counters::Counters;
use crate::error::Error;
use crate::exec::OnDevice;
use crate::observe::{Activity, SubmittedJob};

impl Staged<'_> {
    /// Computes C of what is in the buffers of A, with one SUBMIT for each device.
    ///
    /// # Errors
    /// A job that was refused, killed, dropped, or did not end: all others have ended
    /// when this returns, the activations are as they were, and what the result
    /// buffers hold is undefined. [`StagedError::Lost`](super::StagedError::Lost) if a
    /// job of an earlier call did not end.
    pub fn run(&mut self) -> Result<(), Error> {
        let at = Instant::now();
        let on = self.on(0);
        self.engine.watched().planned(on.token, &self.plan);
        let mut running = Vec::new();
        let mut result = Ok(());
        for device in 0..self.engine.device_count() {
            let on = OnDevice { device, ..on };
            result = result.and_then(|()| self.submit(on, &mut running));
        }
        running.sort_by_key(|(index, _)| *index);
        for (index, pending) in running {
            result = result.and(self.wait(on, index, pending, at));
        }
        result?;
        let (k, n) = (self.plan.weights.k as u64, self.plan.weights.n as u64);
        self.engine.count(&Counters {
            products: 1,
            macs: self.plan.m as u64 * k * n,
            ..Counters::default()
        });
        Ok(())
    }

    /// Submits the jobs of a device.
    fn submit(
        &mut self,
        on: OnDevice<'_>,
        running: &mut Vec<(usize, PendingJob)>,
    ) -> Result<(), Error> {
        let of_device = |index: &usize| self.results[*index].device == on.device;
        let indices: Vec<usize> = (0..self.results.len()).filter(of_device).collect();
        let mut jobs = Vec::with_capacity(indices.len());
        let mut built = Ok(());
        for &index in &indices {
            match self.job(on, index) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    built = Err(error);
                    break;
                }
            }
        }
        let submitted = match built {
            Ok(()) if jobs.is_empty() => return Ok(()),
            Ok(()) => on.hand_over(jobs),
            Err(error) => Err((error, jobs)),
        };
        match submitted {
            Ok(submitted) => {
                running.extend(indices.into_iter().zip(submitted));
                Ok(())
            }
            Err((error, jobs)) => {
                for (job, &index) in jobs.into_iter().zip(&indices) {
                    self.result_memory[index].give_back(job.into_bos().1);
                }
                Err(error)
            }
        }
    }

    /// The job that writes result buffer `index`.
    fn job(&mut self, on: OnDevice<'_>, index: usize) -> Result<Job, Error> {
        let staged = &self.jobs[index];
        let plan = &staged.step.jobs[staged.job];
        self.engine.watched().submitting(&SubmittedJob {
            dtype: self.weights.dtype(),
            step: &staged.step,
            job: plan,
            programs: &staged.programs.linked,
        });
        let builder = Job::builder(self.engine.buffers(on.device).device())
            .program(&staged.programs.bo)
            .reads(&self.weights.block(plan.block).buffer());
        let builder = self.activation_memory[staged.activations].read_by(builder)?;
        let memory = &mut self.result_memory[index];
        memory.written_by(builder)?.build().map_err(|error| {
            memory.give_back(error.writes);
            Error::Build {
                device: on.device,
                source: error.refusal,
            }
        })
    }

    /// Waits until the results of a job are in their buffer.
    fn wait(
        &mut self,
        on: OnDevice<'_>,
        index: usize,
        pending: PendingJob,
        at: Instant,
    ) -> Result<(), Error> {
        let on = OnDevice {
            device: self.results[index].device,
            ..on
        };
        let (done, ended) = {
            let _waiting = self.engine.clock().waiting();
            on.end_of(pending)
        };
        self.result_memory[index].give_back(done.writes);
        ended?;
        let tasks = self.jobs[index].programs.linked.len();
        on.done(Activity::Job { tasks }, at);
        self.engine.count(&Counters {
            jobs: 1,
            tasks: tasks as u64,
            ..Counters::default()
        });
        Ok(())
    }
}
