// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and finishes the waves of several matmuls.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::again::Again;
use super::checked_call::CheckedCall;
use super::job::{BandCopies, JobPlace};
use super::wave::RunningWave;
use crate::engine::Engine;
use crate::engine::activations::QuantisedRows;
use crate::plan::error::EngineCallError;
use crate::plan::{WaveSize, waves};

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
        let (waves, copies) = waves(&lists, &engine.options.limits);
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
            let Some(oldest) = self.running.pop_front() else {
                break;
            };
            let ended = oldest.copies();
            oldest.finish(&mut self.calls, &self.copies)?;
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
            if !self.running.is_empty() && !size.fits(in_flight, &limits) {
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
