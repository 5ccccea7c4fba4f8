// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a staged product: SUBMIT and waits, and nothing else.

use std::fmt;
use std::mem;
use std::time::Instant;

use rocket_uapi::{Job, PendingJob};

use super::memory::ActivationMemory;
use super::{ACTIVATION, RESULT, Staged};
use crate::counters::Counters;
use crate::error::Error;
use crate::exec::OnDevice;
use crate::observe::{Activity, SubmittedJob};

/// A staged product that the devices compute. Its buffers are theirs until
/// [`StagedRun::wait`] returns, or this is dropped, which waits too.
#[must_use = "the results are there when it was waited for"]
pub struct StagedRun<'s, 'a> {
    staged: &'s mut Staged<'a>,
    /// In the order of the result buffers.
    running: Vec<Running>,
    /// For the observer.
    token: u64,
}

struct Running {
    /// Which result buffer it writes.
    results: usize,
    pending: PendingJob,
    /// When it was submitted.
    at: Instant,
}

impl<'s, 'a> StagedRun<'s, 'a> {
    /// Submits all jobs: one SUBMIT for each device.
    pub(super) fn start(staged: &'s mut Staged<'a>) -> Result<Self, Error> {
        let engine = staged.engine;
        let token = engine.watched().token();
        engine.watched().planned(token, &staged.plan);
        for memory in &mut staged.activation_memory {
            memory.freeze();
        }
        let mut run = Self {
            staged,
            running: Vec::new(),
            token,
        };
        for device in 0..engine.device_count() {
            // On an error dropping waits for what other devices compute.
            run.start_on(device)?;
        }
        run.running.sort_by_key(|running| running.results);
        Ok(run)
    }

    fn start_on(&mut self, device: usize) -> Result<(), Error> {
        let on = self.on(device);
        let of_device = |index: &usize| self.staged.results[*index].device == device;
        let indices: Vec<usize> = (0..self.staged.results.len()).filter(of_device).collect();
        let mut jobs = Vec::with_capacity(indices.len());
        for &index in &indices {
            match self.job(on, index) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    self.take_back(&indices, jobs);
                    return Err(error);
                }
            }
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let at = Instant::now();
        match on.hand_over(jobs) {
            Ok(submitted) => {
                let started = submitted.into_iter().zip(indices);
                self.running
                    .extend(started.map(|(pending, results)| Running {
                        results,
                        pending,
                        at,
                    }));
                Ok(())
            }
            Err((error, jobs)) => {
                self.take_back(&indices, jobs);
                Err(error)
            }
        }
    }

    /// The job that writes result buffer `index`.
    fn job(&mut self, on: OnDevice<'_>, index: usize) -> Result<Job, Error> {
        let engine = self.staged.engine;
        let lost = self.staged.lost(RESULT, index);
        let part = &mut self.staged.parts[index];
        let plan = &part.step.jobs[part.job];
        engine.watched().submitting(&SubmittedJob {
            dtype: self.staged.weights.dtype(),
            step: &part.step,
            job: plan,
            programs: &part.programs.linked,
        });
        let mut builder = Job::builder(engine.buffers(on.device).device())
            .program(&part.programs.bo)
            .reads(self.staged.weights.buffer(plan.block));
        let input = self.staged.results[index].activations;
        builder = match &self.staged.activation_memory[input] {
            ActivationMemory::Frozen(bo) => builder.reads(bo),
            ActivationMemory::Shared(dma_buf) => builder.reads_shared(dma_buf),
            // All were frozen.
            ActivationMemory::Open(_) | ActivationMemory::Moving => {
                return Err(self.staged.lost(ACTIVATION, input));
            }
        };
        let memory = &mut self.staged.result_memory[index];
        if let Some(dma_buf) = &memory.shared {
            builder = builder.writes_shared(dma_buf);
        }
        let is_lost = memory.shared.is_none() && memory.owned.is_none();
        if is_lost {
            return Err(lost);
        }
        if let Some(bo) = memory.owned.take() {
            builder = builder.writes(bo);
        }
        builder.build().map_err(|error| {
            memory.take_back(error.writes);
            Error::Build {
                device: on.device,
                source: error.refusal,
            }
        })
    }

    /// The buffers of jobs that were not submitted; those of `indices`, from
    /// the first on.
    fn take_back(&mut self, indices: &[usize], jobs: Vec<Job>) {
        for (job, &index) in jobs.into_iter().zip(indices) {
            let (_, writes) = job.into_bos();
            self.staged.result_memory[index].take_back(writes);
        }
    }

    /// Waits until the results are in their buffers.
    ///
    /// # Errors
    /// A job that was killed, dropped, or did not end: all others have ended
    /// when this returns, the activations are as they were, and what the result
    /// buffers hold is undefined.
    pub fn wait(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        let running = mem::take(&mut self.running);
        if running.is_empty() {
            return Ok(());
        }
        // Else not all jobs were taken, and there is no product.
        let is_whole = running.len() == self.staged.parts.len();
        let mut result = Ok(());
        for Running {
            results,
            pending,
            at,
        } in running
        {
            let on = self.on(self.staged.results[results].device);
            let (done, ended) = {
                let _waiting = self.staged.engine.clock().waiting();
                on.end_of(pending)
            };
            self.staged.result_memory[results].take_back(done.writes);
            if let Err(error) = ended {
                result = result.and(Err(error));
                continue;
            }
            let part = &self.staged.parts[results];
            let tasks = part.programs.linked.len();
            on.done(Activity::Job { tasks }, at);
            self.staged.engine.count(&Counters {
                jobs: 1,
                tasks: tasks as u64,
                ..Counters::default()
            });
        }
        result?;
        if !is_whole {
            return Ok(());
        }
        let Staged { engine, plan, .. } = &*self.staged;
        let (k, n) = (plan.weights.k as u64, plan.weights.n as u64);
        engine.count(&Counters {
            products: 1,
            macs: plan.m as u64 * k * n,
            ..Counters::default()
        });
        Ok(())
    }

    fn on(&self, device: usize) -> OnDevice<'a> {
        OnDevice {
            engine: self.staged.engine,
            device,
            token: self.token,
        }
    }
}

impl Drop for StagedRun<'_, '_> {
    fn drop(&mut self) {
        // Nobody asks for these results any more.
        if let Err(error) = self.finish() {
            tracing::debug!(%error, "a staged product that nobody waited for failed");
        }
    }
}

impl fmt::Debug for StagedRun<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagedRun")
            .field("jobs", &self.running.len())
            .finish_non_exhaustive()
    }
}
