// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wave: steps of one or several matmuls, submitted with one SUBMIT for each device.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rayon::prelude::*;
use rocket_uapi::{Bo, Deadline, FrozenBo, Job, PendingJob};

use super::again::Again;
use super::checked_call::CheckedCall;
use super::job::{DeviceWork, Inputs, PlannedJob};
use crate::device::times::Section;
use crate::engine::Engine;
use crate::plan::WaveSize;
use crate::plan::error::{EngineCallError, Error};
use crate::plan::observe::Activity;

/// A submitted job.
struct RunningJob<'e> {
    on: DeviceWork<'e>,
    /// The joined jobs that it consists of, in order; never empty.
    planned: Vec<PlannedJob>,
    pending: PendingJob,
    /// Time of its SUBMIT.
    at: Instant,
}

impl RunningJob<'_> {
    fn first(&self) -> PlannedJob {
        self.planned[0]
    }
}

/// Jobs that were submitted together.
pub(super) struct RunningWave<'e> {
    /// Memory that the wave needs.
    pub(super) size: WaveSize,
    /// Sorted by steps. Joined steps are neighbours.
    jobs: Vec<RunningJob<'e>>,
}

impl<'e> RunningWave<'e> {
    /// Submits jobs on all devices in parallel. If one device fails, the jobs of the others have
    /// ended on return.
    pub(super) fn start(
        (engine, token, again): (&'e Engine, u64, Again<'e>),
        matmuls: &[CheckedCall<'_>],
        jobs: &[PlannedJob],
        size: WaveSize,
        inputs: &Inputs<'_>,
    ) -> Result<Self, EngineCallError> {
        let mut of_devices = vec![Vec::new(); engine.devices.len()];
        for job in jobs {
            of_devices[matmuls[job.matmul].prepared.job(job.at).device].push(*job);
        }
        let started: Vec<_> = of_devices
            .into_par_iter()
            .enumerate()
            .filter(|(_, jobs)| !jobs.is_empty())
            .map(|(device, jobs)| {
                let on = DeviceWork::new(engine, device, token, again);
                start_on(on, matmuls, &jobs, inputs)
            })
            .collect();
        let mut wave = Self {
            size,
            jobs: Vec::with_capacity(jobs.len()),
        };
        let mut failure = None;
        for jobs in started {
            match jobs {
                Ok(jobs) => wave.jobs.extend(jobs),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        wave.jobs.sort_by_key(|job| job.first().joined);
        match failure {
            None => Ok(wave),
            Some(error) => {
                wave.drain();
                Err(error)
            }
        }
    }

    /// The activations that the wave's jobs read.
    pub(super) fn inputs(&self) -> Vec<usize> {
        let planned = self.jobs.iter().flat_map(|job| &job.planned);
        planned.map(|planned| planned.input.index).collect()
    }

    /// Waits for the jobs, step by step, joined steps together, and collects their results. After
    /// an error it still waits for all jobs.
    pub(super) fn finish(
        mut self,
        matmuls: &mut [CheckedCall<'_>],
        inputs: &Inputs<'_>,
    ) -> Result<(), EngineCallError> {
        while let Some(joined) = self.jobs.first().map(|job| job.first().joined) {
            let is_same = |job: &&RunningJob<'_>| job.first().joined == joined;
            let same = self.jobs.iter().take_while(is_same).count();
            let later = self.jobs.split_off(same);
            let jobs = std::mem::replace(&mut self.jobs, later);
            let finished = finish_steps(matmuls, jobs, inputs);
            if let Err(error) = finished {
                self.drain();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for jobs whose results are not needed any more.
    pub(super) fn drain(self) {
        for job in self.jobs {
            job.on.abandon(job.pending);
        }
    }
}

/// Waits for all jobs of a step, or of joined steps, in parallel, because a wait also maintains the
/// caches of the results. Then collects the results.
fn finish_steps<'e>(
    matmuls: &mut [CheckedCall<'_>],
    jobs: Vec<RunningJob<'e>>,
    inputs: &Inputs<'_>,
) -> Result<(), EngineCallError> {
    let ended: Vec<_> = {
        let engine = jobs.first().map(|job| job.on.engine);
        let _waiting = engine.map(|engine| engine.stopwatch(Section::Wait));
        let end_of = |job: RunningJob<'e>| (job.on, job.planned, job.at, job.on.wait(job.pending));
        jobs.into_par_iter().map(end_of).collect()
    };
    let mut result = Ok(());
    for (on, planned, submitted, done) in ended {
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                // Which of the joined jobs failed is not known.
                result = result.and(Err(EngineCallError::of(planned[0].matmul)(error)));
                continue;
            }
        };
        let plans = planned
            .iter()
            .map(|job| matmuls[job.matmul].prepared.job(job.at));
        on.ended(plans, submitted);
        for (job, c) in planned.into_iter().zip(&done.writes) {
            if result.is_ok() {
                result = collect(on, &mut matmuls[job.matmul], job, inputs, c)
                    .map_err(EngineCallError::of(job.matmul));
            }
        }
        on.keep(done.reads, done.writes);
    }
    result
}

/// Checks and collects the results `c` of a job of a plan.
fn collect(
    on: DeviceWork<'_>,
    matmul: &mut CheckedCall<'_>,
    job: PlannedJob,
    inputs: &Inputs<'_>,
    c: &Bo,
) -> Result<(), Error> {
    let prepared = Arc::clone(&matmul.prepared);
    let plan = prepared.job(job.at);
    if let Some(a) = inputs.bo(job.input.index)
        && !prepared.is_checked.load(Ordering::Relaxed)
    {
        let block = &matmul.weights.blocks[plan.block];
        let b = (&block.buffer(), block.range.clone());
        on.check(plan, (a, job.input.range(plan)), b, c)?;
    }
    let memory = c.read(Deadline::FOREVER).map_err(on.failed())?;
    let from = Instant::now();
    matmul.unpack(&on.engine.clock, plan, &memory);
    let bytes = plan.output_bytes;
    on.done(Activity::Unpack { bytes }, from);
    Ok(())
}

/// Packs, builds and submits the jobs of one device.
fn start_on<'e>(
    on: DeviceWork<'e>,
    matmuls: &[CheckedCall<'_>],
    planned: &[PlannedJob],
    inputs: &Inputs<'_>,
) -> Result<Vec<RunningJob<'e>>, EngineCallError> {
    let joined = || planned.chunk_by(|one, next| one.joined == next.joined);
    let mut jobs: Vec<Job> = Vec::with_capacity(joined().count());
    for planned in joined() {
        match build(on, matmuls, planned, inputs) {
            Ok(job) => jobs.push(job),
            Err(error) => {
                on.discard(jobs);
                return Err(error);
            }
        }
    }
    let at = Instant::now();
    let first = planned.first().map_or(0, |job| job.matmul);
    let submitted = on.submit(jobs).map_err(EngineCallError::of(first))?;
    let submitted = submitted.into_iter().zip(joined());
    Ok(submitted
        .map(|(pending, planned)| RunningJob {
            on,
            planned: planned.to_vec(),
            pending,
            at,
        })
        .collect())
}

/// Packs and builds joined jobs as one.
fn build(
    on: DeviceWork<'_>,
    matmuls: &[CheckedCall<'_>],
    planned: &[PlannedJob],
    inputs: &Inputs<'_>,
) -> Result<Job, EngineCallError> {
    let mut builder = on.job_builder();
    for job in planned {
        let matmul = &matmuls[job.matmul];
        let plan = matmul.prepared.job(job.at);
        let add = |a: FrozenBo| {
            let c = on.buffers().take(plan.output_bytes).map_err(on.failed())?;
            let block = &matmul.weights.blocks[plan.block];
            let b = (&block.buffer(), block.range.clone());
            let a = (&a, job.input.range(plan));
            on.add(builder, matmul.prepared.plan_job(job.at), a, b, c)
        };
        let added = on.packed(inputs, job.input.index).and_then(add);
        builder = added.map_err(EngineCallError::of(job.matmul))?;
    }
    let first = planned.first().map_or(0, |job| job.matmul);
    on.build(builder).map_err(EngineCallError::of(first))
}
