// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is submitted at once: steps of one or several products, in one SUBMIT
//! for each device.

use std::time::Instant;

use rayon::prelude::*;
use rocket_uapi::{Deadline, Job, PendingJob};

use super::job::{Input, OnDevice};
use super::work::Work;
use crate::counters::Counters;
use crate::engine::Engine;
use crate::error::Error;
use crate::observe::Activity;
use crate::plan::Step;

/// A step of a product.
pub(super) struct Part {
    /// Index of the product.
    pub(super) work: usize,
    pub(super) step: Step,
}

/// A submitted job: index of its part, and in the part's step.
struct Started {
    part: usize,
    job: usize,
    device: usize,
    pending: PendingJob,
    /// When it was submitted.
    at: Instant,
}

/// Parts whose jobs were submitted.
pub(super) struct Wave {
    parts: Vec<Part>,
    /// By part, then job.
    jobs: Vec<Started>,
    /// Packed activations, by device.
    inputs: Vec<(usize, Vec<Input>)>,
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
    ) -> Result<Self, Error> {
        let mut slots = vec![Vec::new(); engine.device_count()];
        for (part, Part { step, .. }) in parts.iter().enumerate() {
            for (job, plan) in step.jobs.iter().enumerate() {
                slots[plan.device].push((part, job));
            }
        }
        let started: Vec<_> = slots
            .into_par_iter()
            .enumerate()
            .filter(|(_, slots)| !slots.is_empty())
            .map(|(device, slots)| {
                let on = OnDevice {
                    engine,
                    device,
                    token,
                };
                let mut inputs = Vec::new();
                let jobs = start_on(on, works, &parts, &slots, &mut inputs);
                (device, jobs, inputs)
            })
            .collect();
        let mut wave = Self {
            parts,
            jobs: Vec::new(),
            inputs: Vec::new(),
            token,
        };
        let mut failure = None;
        for (device, jobs, inputs) in started {
            wave.inputs.push((device, inputs));
            match jobs {
                Ok(jobs) => wave.jobs.extend(jobs),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        wave.jobs.sort_by_key(|started| (started.part, started.job));
        match failure {
            None => Ok(wave),
            Some(error) => {
                wave.drain(engine);
                Err(error)
            }
        }
    }

    /// Waits for the jobs in order and collects their results; waits for all of
    /// them even if one fails.
    pub(super) fn finish(
        mut self,
        engine: &Engine,
        works: &mut [Box<dyn Work<'_> + '_>],
    ) -> Result<(), Error> {
        let mut jobs = std::mem::take(&mut self.jobs).into_iter();
        let result = jobs.try_for_each(|started| {
            let Part { work, step } = &self.parts[started.part];
            let plan = &step.jobs[started.job];
            let on = OnDevice {
                engine,
                device: started.device,
                token: self.token,
            };
            let done = on.wait(started.pending)?;
            let tasks = plan.tasks.len();
            on.done(Activity::Job { tasks }, started.at);
            for c in &done.writes {
                let memory = c
                    .read(Deadline::FOREVER)
                    .map_err(Error::on_device(started.device))?;
                let from = Instant::now();
                works[*work].unpack(engine.clock(), plan, &memory);
                let bytes = plan.output_bytes;
                on.done(Activity::Unpack { bytes }, from);
            }
            on.keep(done.reads, done.writes);
            engine.count(&Counters {
                jobs: 1,
                tasks: tasks as u64,
                bytes_from_device: plan.output_bytes as u64,
                ..Counters::default()
            });
            Ok(())
        });
        self.jobs = jobs.collect();
        self.drain(engine);
        result
    }

    /// Waits for jobs whose results nobody wants any more, and keeps all
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
        for (device, inputs) in self.inputs {
            let on = OnDevice {
                engine,
                device,
                token: self.token,
            };
            on.keep_inputs(inputs);
        }
    }
}

/// Packs, builds and submits the jobs of one device.
fn start_on(
    on: OnDevice<'_>,
    works: Works<'_, '_>,
    parts: &[Part],
    slots: &[(usize, usize)],
    inputs: &mut Vec<Input>,
) -> Result<Vec<Started>, Error> {
    let mut jobs: Vec<Job> = Vec::with_capacity(slots.len());
    for &(part, job) in slots {
        let Part { work, step } = &parts[part];
        let (work, plan) = (&*works[*work], &step.jobs[job]);
        let built = on
            .input(work, plan, inputs)
            .and_then(|a| on.build(work.weights(), step, plan, &a));
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
        .map(|(pending, &(part, job))| Started {
            part,
            job,
            device: on.device,
            pending,
            at,
        })
        .collect())
}
