// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and finishes the waves of several matmuls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::again::Again;
use super::checked_call::CheckedCall;
use super::job::{BandCopies, JobPlace};
use super::wave::RunningWave;
use crate::engine::Engine;
use crate::engine::activations::QuantisedRows;
use crate::plan::error::EngineCallError;
use crate::plan::observe::Activity;
use crate::plan::{SharedTimes, WaveSize, waves};
use crate::predict::{shared_job_ps, shared_times};

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
    /// By which NPU and CPU share jobs, and the percentage of its times that the CPU takes.
    shared: Option<(SharedTimes, u64)>,
    /// Whether the CPU has computed a job.
    has_computed: bool,
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
        let is_shared = |call: usize| calls[call].prepared.plan.cpu_jobs;
        let (waves, copies) = waves(&lists, &engine.options.limits, is_shared);
        let times = calls.iter().filter_map(|call| {
            let times = || shared_times(&call.prepared.plan, &engine.options);
            *call.prepared.shared_times.get_or_init(times)
        });
        let times = times.reduce(SharedTimes::slowest);
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
            shared: times.map(|times| (times, engine.cpu_pace.percent())),
            has_computed: false,
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
            while let Some((wave, place)) = self.last_for_cpu()
                && let Some(oldest) = self.running.front()
                && !oldest.has_ended()
            {
                self.compute(wave, place)?;
            }
            let Some(oldest) = self.running.pop_front() else {
                break;
            };
            let ended = oldest.copies();
            oldest.finish(&mut self.calls, &self.copies)?;
            self.copies.release(self.engine, &ended);
        }
        if self.shared.is_some() && !self.has_computed {
            self.engine.cpu_pace.note_none();
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

    /// Whether so many waves are in flight as the NPU needs while the CPU computes a job.
    fn has_enough_in_flight(&self) -> bool {
        let waves = (self.shared).map(|(times, percent)| times.waves_in_flight(percent));
        waves.is_some_and(|waves| self.running.len() >= waves)
    }

    /// The last job that waits for NPU or CPU, with the index of its wave.
    fn last_shared(&self) -> Option<(usize, JobPlace)> {
        let waves = self.waiting.iter().enumerate().rev();
        let mut last = waves.filter_map(|(wave, (places, _))| Some((wave, *places.last()?)));
        last.find(|(_, place)| self.calls[place.call].prepared.plan.cpu_jobs)
    }

    /// The job that the CPU is to compute, with the index of its wave, if there is one and the NPU
    /// has other work for long enough.
    fn last_for_cpu(&self) -> Option<(usize, JobPlace)> {
        let (times, percent) = self.shared?;
        let others = (self.running.len() + self.waiting.len()).saturating_sub(1);
        let has_time = self.has_enough_in_flight() && times.leaves_time(others, percent);
        has_time.then(|| self.last_shared()).flatten()
    }

    /// Computes the last job of a wave that waits, which `place` is, on the CPU.
    fn compute(&mut self, wave: usize, place: JobPlace) -> Result<(), EngineCallError> {
        if let Some((places, _)) = self.waiting.get_mut(wave) {
            places.pop();
            if places.is_empty() {
                self.waiting.remove(wave);
            }
        }
        let engine = self.engine;
        let failed = EngineCallError::of(place.call);
        self.copies.quantise(engine, &place).map_err(&failed)?;
        let from = Instant::now();
        let call = &mut self.calls[place.call];
        let prepared = Arc::clone(&call.prepared);
        let job = prepared.job(place.step, place.job).plan;
        let computed = call.compute(&self.copies.quantised, &engine.clock, job);
        computed.map_err(&failed)?;
        let predicted_ps = shared_job_ps(job, &engine.options);
        engine.cpu_pace.note(from.elapsed(), predicted_ps);
        self.copies.release(engine, &[place.slice.copy]);
        let tasks = job.tasks.len();
        engine.done(self.token, None, Activity::Compute { tasks }, from);
        engine.totals().jobs_on_cpu += 1;
        self.has_computed = true;
        Ok(())
    }

    /// Submits as many waves as may be in flight, by `WAVES_IN_FLIGHT` of `plan/list.rs`; while jobs
    /// wait for NPU or CPU, as many as the NPU needs.
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
            let is_enough = self.has_enough_in_flight() && self.last_shared().is_some();
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
