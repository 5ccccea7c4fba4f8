// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and finishes the waves of several matmuls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::again::Again;
use super::checked_call::CheckedCall;
use super::job::{BandCopies, JobPlace};
use super::wave::RunningWave;
use crate::engine::Engine;
use crate::engine::activations::QuantisedRows;
use crate::plan::error::EngineCallError;
use crate::plan::observe::Activity;
use crate::plan::{SHARED_IN_FLIGHT, WaveSize, waves};

/// Matmuls in progress. Dropping it waits for the submitted jobs.
pub(crate) struct MatmulRun<'a> {
    engine: &'a Engine,
    calls: Vec<CheckedCall<'a>>,
    /// Waves not submitted yet, with their sizes.
    waiting: VecDeque<(Vec<JobPlace>, WaveSize)>,
    running: VecDeque<RunningWave<'a>>,
    /// Packed activations.
    copies: BandCopies<'a>,
    /// The observer's token.
    token: u64,
    again: Again<'a>,
    /// Whether the CPU computes jobs that wait.
    is_shared: bool,
    last: LastTimes,
}

/// Times by which the CPU stops to take jobs.
#[derive(Default)]
struct LastTimes {
    /// The CPU's last job.
    job: Duration,
    /// Between the ends of the last two waves.
    wave: Option<Duration>,
    /// When the last wave was finished.
    finished: Option<Instant>,
}

impl LastTimes {
    fn finished_wave(&mut self) {
        let now = Instant::now();
        let before = self.finished.replace(now);
        self.wave = before.map(|before| now - before).or(self.wave);
    }

    /// Whether the NPU will take as long for this number of waves as the CPU for one job, or it is
    /// not known.
    fn covers_job(&self, waves: usize) -> bool {
        let waves = u32::try_from(waves).unwrap_or(u32::MAX);
        (self.wave).is_none_or(|wave| self.job <= wave.saturating_mul(waves))
    }
}

impl<'a> MatmulRun<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        calls: Vec<CheckedCall<'a>>,
        quantised: Vec<QuantisedRows<'a>>,
        again: Again<'a>,
    ) -> Self {
        let token = engine.observer.token();
        for call in &calls {
            engine.observer.planned(token, &call.prepared.plan);
        }
        let lists: Vec<_> = calls
            .iter()
            .map(|call| (call.a, &call.prepared.steps[..]))
            .collect();
        let is_shared = calls.iter().any(|call| call.prepared.plan.cpu_jobs);
        let (waves, copies) = waves(&lists, &engine.options.limits, is_shared);
        let mut joint = 0;
        let waiting = waves.into_iter().map(|wave| {
            let mut places = Vec::with_capacity(wave.size.jobs);
            for step in wave.steps {
                joint += usize::from(!step.is_joined);
                let slices = step.slices.into_iter().enumerate();
                places.extend(slices.map(|(job, slice)| JobPlace {
                    call: step.matmul,
                    step: step.index,
                    job,
                    slice,
                    joint,
                }));
            }
            (places, wave.size)
        });
        Self {
            engine,
            waiting: waiting.collect(),
            calls,
            running: VecDeque::new(),
            copies: BandCopies::new(copies, quantised),
            token,
            again,
            is_shared,
            last: LastTimes::default(),
        }
    }

    /// Runs all waves.
    pub(crate) fn finish(self) -> Result<(), EngineCallError> {
        let engine = self.engine;
        engine.workers.run(|| self.finish_here())
    }

    fn finish_here(mut self) -> Result<(), EngineCallError> {
        loop {
            self.start()?;
            while let Some(place) = self.last_for_cpu()
                && self.running.front().is_some_and(|wave| !wave.has_ended())
            {
                self.compute(place)?;
            }
            let Some(oldest) = self.running.pop_front() else {
                break;
            };
            let ended = oldest.copies();
            oldest.finish(&mut self.calls, &self.copies)?;
            self.last.finished_wave();
            self.copies.release(self.engine, &ended);
        }
        for call in &self.calls {
            let mut totals = self.engine.totals();
            totals.calls += 1;
            totals.macs += call.macs();
            let prepared = &call.prepared;
            if !prepared.is_checked.load(Ordering::Relaxed) {
                // Operands may have shown nothing.
                let mut jobs = prepared.steps.iter().flat_map(|step| &step.jobs);
                let are_right = jobs.all(|job| self.engine.first_runs.unchecked(job).is_empty());
                prepared.is_checked.store(are_right, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The last job that waits, if the CPU may compute it and will have done so before the NPU has
    /// computed all others.
    fn last_for_cpu(&self) -> Option<JobPlace> {
        let (places, _) = self.waiting.back()?;
        let place = places.last()?;
        let is_shared = self.calls[place.call].prepared.plan.cpu_jobs;
        let others = (self.waiting.len() + self.running.len()).saturating_sub(1);
        (is_shared && self.last.covers_job(others)).then_some(*place)
    }

    /// Computes the last job that waits, which `place` is, on the CPU.
    fn compute(&mut self, place: JobPlace) -> Result<(), EngineCallError> {
        if let Some((mut places, size)) = self.waiting.pop_back() {
            places.pop();
            if !places.is_empty() {
                self.waiting.push_back((places, size));
            }
        }
        let (engine, from) = (self.engine, Instant::now());
        let failed = EngineCallError::of(place.call);
        self.copies.quantise(engine, &place).map_err(&failed)?;
        let call = &mut self.calls[place.call];
        let prepared = Arc::clone(&call.prepared);
        let job = prepared.job(place.step, place.job).plan;
        let computed = call.compute(&self.copies.quantised, &engine.clock, job);
        computed.map_err(&failed)?;
        self.copies.release(engine, &[place.slice.copy]);
        let tasks = job.tasks.len();
        self.last.job = from.elapsed();
        engine.done(self.token, None, Activity::Compute { tasks }, from);
        engine.totals().jobs_on_cpu += 1;
        Ok(())
    }

    /// Submits as many waves as may be in flight, by `WAVES_IN_FLIGHT` of `plan/list.rs`.
    fn start(&mut self) -> Result<(), EngineCallError> {
        let limits = self.engine.options.limits;
        while let Some((_, size)) = self.waiting.front() {
            let sizes = self.running.iter().map(|wave| &wave.size);
            let results: usize = sizes.clone().map(WaveSize::result_bytes).sum();
            let jobs = sizes.map(|size| size.jobs).sum();
            let in_flight = [
                results + self.copies.packed_bytes(self.engine.devices.len()),
                jobs,
            ];
            let is_enough = self.is_shared && self.running.len() >= SHARED_IN_FLIGHT;
            if !self.running.is_empty() && (is_enough || !size.fits(in_flight, &limits)) {
                break;
            }
            let Some((places, size)) = self.waiting.pop_front() else {
                break;
            };
            for place in &places {
                let quantised = self.copies.quantise(self.engine, place);
                quantised.map_err(EngineCallError::of(place.call))?;
            }
            let run = (self.engine, self.token, self.again);
            let wave = RunningWave::start(run, &self.calls, &places, size, &self.copies)?;
            self.running.push_back(wave);
        }
        Ok(())
    }
}

impl Drop for MatmulRun<'_> {
    fn drop(&mut self) {
        for wave in self.running.drain(..) {
            wave.drain();
        }
        self.copies.release_all(self.engine);
    }
}
