// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs products: pack, submit to all devices, wait, unpack and add up.
//!
//! ```text
//! for each wave (the next steps, of as many products as belong together):
//!     on each device:  pack A -> link programs -> one SUBMIT   (start)
//! for each wave, in the same order:
//!     for each job:    wait -> unpack C, add up, scale         (finish)
//! ```
//!
//! All waves that have room are started before the first is finished, so that the NPU
//! computes while the CPU packs the next, and the CPU unpacks while the NPU computes.
//! `wave` has that; `job` what happens to one job, `work` how the matrices of a
//! product become buffers and buffers its matrix, `collect` what becomes of the
//! numbers in an output tile, `target` where they go.

mod collect;
mod job;
mod target;
mod wave;
mod work;

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::error::Error;
use crate::plan::{WaveBuilder, WaveSize};
use crate::quantised::OutlierProduct;
pub(crate) use collect::{Collect, Dequantised, Groups, Scaled, Sums};
use job::Inputs;
pub(crate) use job::{OnDevice, link};
pub(crate) use target::{Narrowed, ResultTarget};
use wave::{Part, Wave};
pub(crate) use work::{PlannedProduct, ToOutlierProduct, Work};

/// Products in progress. Dropping it waits for what was submitted.
pub(crate) struct ProductRun<'a> {
    engine: &'a Engine,
    works: Vec<Box<dyn Work<'a> + 'a>>,
    /// What is not submitted yet, and what it needs.
    waiting: VecDeque<(Vec<Part>, WaveSize)>,
    running: VecDeque<Wave>,
    /// Packed activations.
    inputs: Inputs,
    /// For the observer.
    token: u64,
}

impl<'a> ProductRun<'a> {
    pub(crate) fn new(engine: &'a Engine, works: Vec<Box<dyn Work<'a> + 'a>>) -> Self {
        let token = engine.watched().token();
        let limits = engine.limits();
        let mut inputs = Inputs::new(engine.device_count());
        let mut waiting = VecDeque::new();
        let (mut builder, mut parts) = (WaveBuilder::default(), Vec::new());
        for (work, product) in works.iter().enumerate() {
            engine.watched().planned(token, &product.prepared().plan);
            for (step, of_step) in product.prepared().steps.iter().enumerate() {
                let jobs = of_step.jobs.iter();
                let of_jobs: Vec<_> = jobs.map(|job| inputs.of(&**product, job)).collect();
                let packs: Vec<_> = of_jobs.iter().map(|(_, is_new)| *is_new).collect();
                if let Some(size) = builder.push(of_step, &packs, &limits) {
                    waiting.push_back((std::mem::take(&mut parts), size));
                }
                let jobs = of_jobs.into_iter().map(|(input, _)| input).collect();
                parts.push(Part {
                    work,
                    step,
                    inputs: jobs,
                });
            }
        }
        if !parts.is_empty() {
            waiting.push_back((parts, builder.finish()));
        }
        Self {
            engine,
            works,
            waiting,
            running: VecDeque::new(),
            inputs,
            token,
        }
    }

    /// Submits as much as may be in flight.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let engine = self.engine;
        engine.workers().run(|| self.start_here())
    }

    fn start_here(&mut self) -> Result<(), Error> {
        let limits = self.engine.limits();
        while let Some((_, size)) = self.waiting.front() {
            let sizes = self.running.iter().map(|wave| &wave.size);
            let results: usize = sizes.clone().map(WaveSize::result_bytes).sum();
            let jobs = sizes.map(|size| size.jobs).sum();
            let in_flight = [results + self.inputs.packed_bytes(), jobs];
            if !self.running.is_empty() && !size.fits(in_flight, &limits) {
                break;
            }
            let Some((parts, size)) = self.waiting.pop_front() else {
                break;
            };
            let (works, inputs) = (&self.works, &mut self.inputs);
            let wave = Wave::start(self.engine, self.token, works, parts, size, inputs)?;
            self.running.push_back(wave);
        }
        Ok(())
    }

    /// Computes what is left, and what is to be added to the results then.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let engine = self.engine;
        engine.workers().run(|| self.finish_here())
    }

    fn finish_here(mut self) -> Result<(), Error> {
        loop {
            self.start_here()?;
            let Some(oldest) = self.running.pop_front() else {
                break;
            };
            let needed = oldest.inputs();
            oldest.finish(self.engine, &mut self.works)?;
            self.inputs.release(self.engine, &needed);
        }
        for work in &self.works {
            self.engine.count(&work.counters());
        }
        let works = std::mem::take(&mut self.works);
        let outliers: Vec<OutlierProduct<'_>> =
            works.into_iter().filter_map(Work::outliers).collect();
        if outliers.is_empty() {
            return Ok(());
        }
        OutlierProduct::finish(self.engine, outliers)
    }
}

impl Drop for ProductRun<'_> {
    fn drop(&mut self) {
        for wave in self.running.drain(..) {
            wave.drain(self.engine);
        }
        self.inputs.release_all(self.engine);
    }
}
