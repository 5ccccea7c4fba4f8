// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wave: steps of one or several matmuls, submitted with one SUBMIT for each device.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rayon::prelude::*;
use rocket_uapi::{Bo, Deadline, FrozenBo, Job, PendingJob};

use super::again::Again;
use super::checked_call::CheckedCall;
use super::job::{BandCopies, DeviceWork, JobPlace};
use crate::device::times::Section;
use crate::engine::Engine;
use crate::plan::WaveSize;
use crate::plan::error::{EngineCallError, Error};
use crate::plan::kept_plan::PlanJob;
use crate::plan::observe::Activity;

/// A submitted job.
struct RunningJob<'e> {
    on: DeviceWork<'e>,
    /// The joined jobs that it consists of, in order; never empty.
    places: Vec<JobPlace>,
    pending: PendingJob,
    /// Time of its SUBMIT.
    at: Instant,
}

impl RunningJob<'_> {
    fn joint(&self) -> usize {
        self.places[0].joint
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
        calls: &[CheckedCall<'_>],
        places: &[JobPlace],
        size: WaveSize,
        copies: &BandCopies<'_>,
    ) -> Result<Self, EngineCallError> {
        let mut devices = vec![Vec::new(); engine.devices.len()];
        for place in places {
            devices[plan_job(calls, place).plan.device].push(*place);
        }
        let started: Vec<_> = devices
            .into_par_iter()
            .enumerate()
            .filter(|(_, places)| !places.is_empty())
            .map(|(device, places)| {
                let on = DeviceWork::new(engine, device, token, again);
                start_on(on, calls, &places, copies)
            })
            .collect();
        let mut wave = Self {
            size,
            jobs: Vec::with_capacity(places.len()),
        };
        let mut failure = None;
        for jobs in started {
            match jobs {
                Ok(jobs) => wave.jobs.extend(jobs),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        wave.jobs.sort_by_key(RunningJob::joint);
        match failure {
            None => Ok(wave),
            Some(error) => {
                wave.drain();
                Err(error)
            }
        }
    }

    /// Whether the jobs of the next step have ended, so that [`Self::finish`] waits for none of
    /// them.
    pub(super) fn has_ended(&self) -> bool {
        let next = self.jobs.first().map(RunningJob::joint);
        let mut jobs = self.jobs.iter().take_while(|job| Some(job.joint()) == next);
        jobs.all(|job| job.pending.has_ended())
    }

    /// The copies that the wave's jobs read.
    pub(super) fn copies(&self) -> Vec<usize> {
        let places = self.jobs.iter().flat_map(|job| &job.places);
        places.map(|place| place.slice.copy).collect()
    }

    /// Waits for the jobs, step by step, joined steps together, and collects their results. After
    /// an error it still waits for all jobs.
    pub(super) fn finish(
        mut self,
        calls: &mut [CheckedCall<'_>],
        copies: &BandCopies<'_>,
    ) -> Result<(), EngineCallError> {
        while let Some(joint) = self.jobs.first().map(RunningJob::joint) {
            let count = self
                .jobs
                .iter()
                .take_while(|job| job.joint() == joint)
                .count();
            let later = self.jobs.split_off(count);
            let jobs = std::mem::replace(&mut self.jobs, later);
            let finished = finish_steps(calls, jobs, copies);
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

/// The plan of a job.
fn plan_job<'p>(calls: &'p [CheckedCall<'_>], place: &JobPlace) -> PlanJob<'p> {
    calls[place.call].prepared.job(place.step, place.job)
}

/// Waits for all jobs of a step, or of joined steps, in parallel, because a wait also maintains the
/// caches of the results. Then collects the results.
fn finish_steps<'e>(
    calls: &mut [CheckedCall<'_>],
    jobs: Vec<RunningJob<'e>>,
    copies: &BandCopies<'_>,
) -> Result<(), EngineCallError> {
    let ended: Vec<_> = {
        let engine = jobs.first().map(|job| job.on.engine);
        let _waiting = engine.map(|engine| engine.stopwatch(Section::Wait));
        let end_of = |job: RunningJob<'e>| (job.on, job.places, job.at, job.on.wait(job.pending));
        jobs.into_par_iter().map(end_of).collect()
    };
    let mut result = Ok(());
    for (on, places, submitted, done) in ended {
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                // Which of the joined jobs failed is not known.
                result = result.and(Err(EngineCallError::of(places[0].call)(error)));
                continue;
            }
        };
        let plans = places.iter().map(|place| plan_job(calls, place).plan);
        on.ended(plans, submitted);
        for (place, c) in places.into_iter().zip(&done.writes) {
            if result.is_ok() {
                result = collect(on, &mut calls[place.call], place, copies, c)
                    .map_err(EngineCallError::of(place.call));
            }
        }
        on.keep(done.reads, done.writes);
    }
    result
}

/// Checks and collects the results `c` of a job of a plan.
fn collect(
    on: DeviceWork<'_>,
    call: &mut CheckedCall<'_>,
    place: JobPlace,
    copies: &BandCopies<'_>,
    c: &Bo,
) -> Result<(), Error> {
    let prepared = Arc::clone(&call.prepared);
    let plan = prepared.job(place.step, place.job).plan;
    if let Some(a) = copies.bo(place.slice.copy)
        && !prepared.is_checked.load(Ordering::Relaxed)
    {
        let block = &call.weights.blocks[plan.block];
        let b = (&block.buffer(), block.range.clone());
        on.check(plan, (a, place.slice.range(plan)), b, c)?;
    }
    let memory = c.read(Deadline::FOREVER).map_err(on.failed())?;
    let from = Instant::now();
    call.unpack(&copies.quantised, &on.engine.clock, plan, &memory);
    let bytes = plan.output_bytes;
    on.done(Activity::Unpack { bytes }, from);
    Ok(())
}

/// Packs, builds and submits the jobs of one device.
fn start_on<'e>(
    on: DeviceWork<'e>,
    calls: &[CheckedCall<'_>],
    places: &[JobPlace],
    copies: &BandCopies<'_>,
) -> Result<Vec<RunningJob<'e>>, EngineCallError> {
    let joined = || places.chunk_by(|one, next| one.joint == next.joint);
    let mut jobs: Vec<Job> = Vec::with_capacity(joined().count());
    for places in joined() {
        match build(on, calls, places, copies) {
            Ok(job) => jobs.push(job),
            Err(error) => {
                on.discard(jobs);
                return Err(error);
            }
        }
    }
    let at = Instant::now();
    let first = places.first().map_or(0, |place| place.call);
    let submitted = on.submit(jobs).map_err(EngineCallError::of(first))?;
    let submitted = submitted.into_iter().zip(joined());
    Ok(submitted
        .map(|(pending, places)| RunningJob {
            on,
            places: places.to_vec(),
            pending,
            at,
        })
        .collect())
}

/// Packs and builds joined jobs as one.
fn build(
    on: DeviceWork<'_>,
    calls: &[CheckedCall<'_>],
    places: &[JobPlace],
    copies: &BandCopies<'_>,
) -> Result<Job, EngineCallError> {
    let mut builder = on.job_builder();
    for place in places {
        let job = plan_job(calls, place);
        let add = |a: FrozenBo| {
            let bytes = job.plan.output_bytes;
            let c = on.buffers().take(bytes).map_err(on.failed())?;
            let block = &calls[place.call].weights.blocks[job.plan.block];
            let b = (&block.buffer(), block.range.clone());
            on.add(builder, job, (&a, place.slice.range(job.plan)), b, c)
        };
        let added = on.packed(copies, place.slice.copy).and_then(add);
        builder = added.map_err(EngineCallError::of(place.call))?;
    }
    let first = places.first().map_or(0, |place| place.call);
    on.build(builder).map_err(EngineCallError::of(first))
}
