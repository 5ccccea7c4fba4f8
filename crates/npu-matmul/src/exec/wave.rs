// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wave: steps of one or several matmuls, submitted with one SUBMIT for each device.

use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;
use rocket_uapi::{Job, PendingJob};

use super::job::{Input, InputIndex, Inputs, OnDevice, PlannedJob};
use super::matmul::Matmul;
use crate::engine::Engine;
use crate::error::{Error, GemmCallError};
use crate::observe::Activity;
use crate::plan::WaveSize;

/// A submitted job.
struct RunningJob {
    planned: PlannedJob,
    pending: PendingJob,
    /// Time of its SUBMIT.
    at: Instant,
}

/// Jobs that were submitted together.
pub(super) struct Wave {
    /// Memory that the wave needs.
    pub(super) size: WaveSize,
    /// Sorted by matmul, step and job.
    jobs: Vec<RunningJob>,
    /// The observer's token.
    token: u64,
}

impl Wave {
    /// Submits jobs on all devices in parallel. If one device fails, the jobs of the others have
    /// ended on return.
    pub(super) fn start(
        engine: &Engine,
        token: u64,
        matmuls: &[Matmul<'_>],
        jobs: &[PlannedJob],
        size: WaveSize,
        inputs: &mut Inputs,
    ) -> Result<Self, GemmCallError> {
        let mut of_devices = vec![Vec::new(); engine.device_count()];
        for job in jobs {
            of_devices[job.input.device].push(*job);
        }
        let started: Vec<_> = of_devices
            .into_par_iter()
            .zip(inputs.by_device())
            .enumerate()
            .filter(|(_, (jobs, _))| !jobs.is_empty())
            .map(|(device, (jobs, inputs))| {
                let on = OnDevice {
                    engine,
                    device,
                    token,
                };
                start_on(on, matmuls, &jobs, inputs)
            })
            .collect();
        let mut wave = Self {
            size,
            jobs: Vec::with_capacity(jobs.len()),
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
            .sort_by_key(|job| (job.planned.matmul, job.planned.at));
        match failure {
            None => Ok(wave),
            Some(error) => {
                wave.drain(engine);
                Err(error)
            }
        }
    }

    /// The activations that the wave's jobs read.
    pub(super) fn inputs(&self) -> Vec<InputIndex> {
        self.jobs.iter().map(|job| job.planned.input).collect()
    }

    /// Waits for the jobs, step by step, and collects their results. After an error it still waits
    /// for all jobs.
    pub(super) fn finish(
        mut self,
        engine: &Engine,
        matmuls: &mut [Matmul<'_>],
        inputs: &Inputs,
    ) -> Result<(), GemmCallError> {
        let step_of = |job: &RunningJob| (job.planned.matmul, job.planned.at.step);
        while let Some(first) = self.jobs.first() {
            let of_step = step_of(first);
            let same = self.jobs.iter().take_while(|job| step_of(job) == of_step);
            let later = self.jobs.split_off(same.count());
            let jobs = std::mem::replace(&mut self.jobs, later);
            let matmul = &mut matmuls[of_step.0];
            let finished = finish_step(engine, self.token, matmul, jobs, inputs);
            if let Err(error) = finished.map_err(GemmCallError::of(of_step.0)) {
                self.drain(engine);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for jobs whose results are not needed any more and recycles their buffers. Their
    /// errors are only logged: an earlier error is the cause.
    pub(super) fn drain(self, engine: &Engine) {
        for job in self.jobs {
            let on = OnDevice {
                engine,
                device: job.planned.input.device,
                token: self.token,
            };
            match on.wait(job.pending) {
                Ok(done) => on.keep(done.reads, done.writes),
                Err(error) => tracing::debug!(%error, "one more job failed"),
            }
        }
    }
}

/// Waits for all jobs of a step in parallel, because a wait also maintains the caches of the
/// results. Then collects the results.
fn finish_step(
    engine: &Engine,
    token: u64,
    matmul: &mut Matmul<'_>,
    jobs: Vec<RunningJob>,
    inputs: &Inputs,
) -> Result<(), Error> {
    let prepared = Arc::clone(&matmul.prepared);
    let ended: Vec<_> = {
        let _waiting = engine.clock().waiting();
        let end_of = |job: RunningJob| {
            let on = OnDevice {
                engine,
                device: job.planned.input.device,
                token,
            };
            (on, job.planned, job.at, on.wait(job.pending))
        };
        jobs.into_par_iter().map(end_of).collect()
    };
    let mut result = Ok(());
    for (on, planned, submitted, done) in ended {
        let plan = prepared.job(planned.at);
        let collected = done.and_then(|done| {
            let tasks = plan.tasks.len();
            on.done(Activity::Job { tasks }, submitted);
            let collected = if result.is_ok() {
                on.check(matmul, plan, inputs.bo(planned.input), &done.writes)
                    .and_then(|()| on.collect(matmul, plan, &done.writes))
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

/// Packs, builds and submits the jobs of one device.
fn start_on(
    on: OnDevice<'_>,
    matmuls: &[Matmul<'_>],
    planned: &[PlannedJob],
    inputs: &mut [Input],
) -> Result<Vec<RunningJob>, GemmCallError> {
    let mut jobs: Vec<Job> = Vec::with_capacity(planned.len());
    for job in planned {
        let matmul = &matmuls[job.matmul];
        let built = on
            .packed(
                matmul,
                matmul.prepared.job(job.at),
                &mut inputs[job.input.index],
            )
            .and_then(|a| on.build(matmul, job.at, &a));
        match built {
            Ok(job) => jobs.push(job),
            Err(error) => {
                on.discard(jobs);
                return Err(GemmCallError::of(job.matmul)(error));
            }
        }
    }
    let at = Instant::now();
    let first = planned.first().map_or(0, |job| job.matmul);
    let submitted = on.submit(jobs).map_err(GemmCallError::of(first))?;
    let submitted = submitted.into_iter().zip(planned);
    Ok(submitted
        .map(|(pending, &planned)| RunningJob {
            planned,
            pending,
            at,
        })
        .collect())
}
