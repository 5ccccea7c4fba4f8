// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is submitted at once: steps of one or several products, in one SUBMIT
//! for each device.

use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;
use rocket_uapi::{Job, PendingJob};

use super::job::{Input, InputIndex, Inputs, OnDevice};
use super::work::Work;
use crate::engine::Engine;
use crate::error::Error;
use crate::observe::Activity;
use crate::plan::WaveSize;
use crate::prepared::JobIndex;

/// A step of a product.
pub(super) struct Part {
    /// Index of the product.
    pub(super) work: usize,
    /// Index of its step.
    pub(super) step: usize,
    /// The activations of each of its jobs.
    pub(super) inputs: Vec<InputIndex>,
}

/// A job to be submitted.
#[derive(Clone, Copy)]
struct Slot {
    /// Index of the product.
    work: usize,
    at: JobIndex,
    /// Its activations.
    input: usize,
}

/// A submitted job.
struct Started {
    slot: Slot,
    device: usize,
    pending: PendingJob,
    /// When it was submitted.
    at: Instant,
}

/// Parts whose jobs were submitted.
pub(super) struct Wave {
    parts: Vec<Part>,
    /// What it needs.
    pub(super) size: WaveSize,
    /// By product, step, then job.
    jobs: Vec<Started>,
    /// For the observer.
    token: u64,
}

type Works<'w, 'a> = &'w [Box<dyn Work<'a> + 'a>];

impl Wave {
    /// Submits all jobs of `parts`, on all devices at the same time. If one
    /// fails, the others have ended when this returns.
    pub(super) fn start(
        engine: &Engine,
        token: u64,
        works: Works<'_, '_>,
        parts: Vec<Part>,
        size: WaveSize,
        inputs: &mut Inputs,
    ) -> Result<Self, Error> {
        let mut slots = vec![Vec::new(); engine.device_count()];
        for part in &parts {
            for (job, input) in part.inputs.iter().enumerate() {
                let slot = Slot {
                    work: part.work,
                    at: JobIndex {
                        step: part.step,
                        job,
                    },
                    input: input.index,
                };
                slots[input.device].push(slot);
            }
        }
        let started: Vec<_> = slots
            .into_par_iter()
            .zip(inputs.by_device())
            .enumerate()
            .filter(|(_, (slots, _))| !slots.is_empty())
            .map(|(device, (slots, inputs))| {
                let on = OnDevice {
                    engine,
                    device,
                    token,
                };
                start_on(on, works, &slots, inputs)
            })
            .collect();
        let mut wave = Self {
            parts,
            size,
            jobs: Vec::new(),
            token,
        };
        let mut failure = None;
        for jobs in started {
            match jobs {
                Ok(jobs) => wave.jobs.extend(jobs),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        wave.jobs
            .sort_by_key(|started| (started.slot.work, started.slot.at));
        match failure {
            None => Ok(wave),
            Some(error) => {
                wave.drain(engine);
                Err(error)
            }
        }
    }

    /// The activations that its jobs read.
    pub(super) fn inputs(&self) -> Vec<InputIndex> {
        let inputs = self.parts.iter().flat_map(|part| &part.inputs);
        inputs.copied().collect()
    }

    /// Waits for the jobs of one step after the other and collects their results; waits
    /// for all of them even if one fails.
    pub(super) fn finish(
        mut self,
        engine: &Engine,
        works: &mut [Box<dyn Work<'_> + '_>],
    ) -> Result<(), Error> {
        let mut jobs = std::mem::take(&mut self.jobs);
        while !jobs.is_empty() {
            let Slot { work, at, .. } = jobs[0].slot;
            let of_step = |started: &Started| (started.slot.work, started.slot.at.step);
            let count = jobs
                .iter()
                .take_while(|job| of_step(job) == (work, at.step));
            let later = jobs.split_off(count.count());
            let step = std::mem::replace(&mut jobs, later);
            if let Err(error) = self.finish_step(engine, &mut *works[work], step) {
                self.jobs = jobs;
                self.drain(engine);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for the jobs of a step at the same time, since that also maintains the
    /// caches of their results; then collects these.
    fn finish_step(
        &self,
        engine: &Engine,
        work: &mut (dyn Work<'_> + '_),
        jobs: Vec<Started>,
    ) -> Result<(), Error> {
        let prepared = Arc::clone(work.prepared());
        let on = |device| OnDevice {
            engine,
            device,
            token: self.token,
        };
        let ended: Vec<_> = {
            let _waiting = engine.clock().waiting();
            let end_of = |started: Started| {
                let done = on(started.device).wait(started.pending);
                (started.slot, started.device, started.at, done)
            };
            jobs.into_par_iter().map(end_of).collect()
        };
        let mut result = Ok(());
        for (slot, device, at, done) in ended {
            let (on, plan) = (on(device), prepared.job(slot.at));
            let collected = done.and_then(|done| {
                on.done(
                    Activity::Job {
                        tasks: plan.tasks.len(),
                    },
                    at,
                );
                let collected = if result.is_ok() {
                    on.collect(work, plan, &done.writes)
                } else {
                    Ok(())
                };
                on.keep(done.reads, done.writes);
                collected
            });
            result = result.and(collected);
        }
        result
    }

    /// Waits for jobs whose results nobody wants any more, and keeps their
    /// buffers. Errors would only hide the one that made them unwanted.
    pub(super) fn drain(self, engine: &Engine) {
        for started in self.jobs {
            let on = OnDevice {
                engine,
                device: started.device,
                token: self.token,
            };
            match on.wait(started.pending) {
                Ok(done) => on.keep(done.reads, done.writes),
                Err(error) => tracing::debug!(%error, "one more job failed"),
            }
        }
    }
}

/// Packs, builds and submits the jobs of one device.
fn start_on(
    on: OnDevice<'_>,
    works: Works<'_, '_>,
    slots: &[Slot],
    inputs: &mut [Input],
) -> Result<Vec<Started>, Error> {
    let mut jobs: Vec<Job> = Vec::with_capacity(slots.len());
    for slot in slots {
        let work = &*works[slot.work];
        let built = on
            .packed(work, work.prepared().job(slot.at), &mut inputs[slot.input])
            .and_then(|a| on.build(work, slot.at, &a));
        match built {
            Ok(job) => jobs.push(job),
            Err(error) => {
                on.discard(jobs);
                return Err(error);
            }
        }
    }
    let at = Instant::now();
    let submitted = on.submit(jobs)?.into_iter().zip(slots);
    Ok(submitted
        .map(|(pending, &slot)| Started {
            slot,
            device: on.device,
            pending,
            at,
        })
        .collect())
}
