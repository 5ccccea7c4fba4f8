// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and finishes the waves of several matmuls.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::again::Again;
use super::checked_call::CheckedCall;
use super::job::{Inputs, PlannedJob};
use super::wave::RunningWave;
use crate::engine::Engine;
use crate::plan::error::EngineCallError;
use crate::plan::kept_plan::JobIndex;
use crate::plan::{WaveSize, waves};

/// Matmuls in progress. Dropping it waits for the submitted jobs.
pub(crate) struct MatmulRun<'a> {
    engine: &'a Engine,
    matmuls: Vec<CheckedCall<'a>>,
    /// Waves not submitted yet, with their sizes.
    waiting: VecDeque<(Vec<PlannedJob>, WaveSize)>,
    running: VecDeque<RunningWave<'a>>,
    /// Packed activations.
    inputs: Inputs<'a>,
    /// The observer's token.
    token: u64,
    again: Again<'a>,
}

impl<'a> MatmulRun<'a> {
    pub(crate) fn new(engine: &'a Engine, matmuls: Vec<CheckedCall<'a>>, again: Again<'a>) -> Self {
        let token = engine.observer.token();
        for matmul in &matmuls {
            engine.observer.planned(token, &matmul.prepared.plan);
        }
        let lists = matmuls.iter();
        let lists: Vec<_> = lists
            .map(|matmul| (matmul.a, &matmul.prepared.steps[..]))
            .collect();
        let (waves, inputs) = waves(&lists, &engine.options.limits);
        let mut joined = 0;
        let waiting = waves.into_iter().map(|wave| {
            let mut jobs = Vec::with_capacity(wave.size.jobs);
            for step in wave.steps {
                joined += usize::from(!step.is_joined);
                let of_step = step.inputs.into_iter().enumerate();
                jobs.extend(of_step.map(|(job, input)| PlannedJob {
                    matmul: step.matmul,
                    at: JobIndex {
                        step: step.index,
                        job,
                    },
                    input,
                    joined,
                }));
            }
            (jobs, wave.size)
        });
        let waiting = waiting.collect();
        let inputs = Inputs::new(inputs);
        Self {
            engine,
            matmuls,
            waiting,
            running: VecDeque::new(),
            inputs,
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
            let needed = oldest.inputs();
            oldest.finish(&mut self.matmuls, &self.inputs)?;
            self.inputs.release(self.engine, &needed);
        }
        for matmul in &self.matmuls {
            let mut totals = self.engine.totals();
            totals.calls += 1;
            totals.macs += matmul.macs();
            let prepared = &matmul.prepared;
            if !prepared.is_checked.load(Ordering::Relaxed) {
                // Operands may have shown nothing.
                let mut jobs = prepared.steps.iter().flat_map(|step| &step.jobs);
                let are_right = jobs.all(|job| self.engine.first_runs.unchecked(job).is_empty());
                prepared.is_checked.store(are_right, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Submits as many waves as may be in flight.
    fn start(&mut self) -> Result<(), EngineCallError> {
        let limits = self.engine.options.limits;
        while let Some((_, size)) = self.waiting.front() {
            let sizes = self.running.iter().map(|wave| &wave.size);
            let results: usize = sizes.clone().map(WaveSize::result_bytes).sum();
            let jobs = sizes.map(|size| size.jobs).sum();
            let in_flight = [
                results + self.inputs.packed_bytes(self.engine.devices.len()),
                jobs,
            ];
            if !self.running.is_empty() && !size.fits(in_flight, &limits) {
                break;
            }
            let Some((jobs, size)) = self.waiting.pop_front() else {
                break;
            };
            let (matmuls, inputs) = (&self.matmuls, &self.inputs);
            let call = (self.engine, self.token, self.again);
            let wave = RunningWave::start(call, matmuls, &jobs, size, inputs)?;
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
        self.inputs.release_all(self.engine);
    }
}
