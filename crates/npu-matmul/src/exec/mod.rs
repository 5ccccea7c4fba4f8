// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs products: pack, submit to all devices, wait, unpack and add up.
//!
//! ```text
//! for each wave (the next steps, of as many products as have room):
//!     on each device:  pack A -> link programs -> one SUBMIT   (start)
//!     for each job:    wait -> unpack C, add up, scale         (finish)
//! ```
//!
//! One wave is started before the one before it is finished, so that the CPU
//! packs and unpacks while the NPU computes. `wave` has that; `job` what
//! happens to one job, `work` how the matrices of a product become buffers and
//! buffers its matrix, `collect` what becomes of the numbers in an output tile,
//! `target` where they go.

mod collect;
mod job;
mod target;
mod wave;
mod work;

use std::collections::VecDeque;
use std::iter::Peekable;

use crate::engine::Engine;
use crate::error::Error;
use crate::plan::{Step, WAVES_IN_FLIGHT, WaveLimit, WaveSize};
use crate::quantised::OutlierProduct;
pub(crate) use collect::{Collect, Dequantised, Groups, Scaled, Sums};
pub(crate) use job::{OnDevice, link};
pub(crate) use target::{Narrowed, Target};
use wave::{Part, Wave};
pub(crate) use work::{Product, ToOutlierProduct, Work};

type Steps<'a> = Peekable<Box<dyn Iterator<Item = Step> + Send + Sync + 'a>>;

/// Products in progress. Dropping it waits for what was submitted.
pub(crate) struct Run<'a> {
    engine: &'a Engine,
    works: Vec<Box<dyn Work<'a> + 'a>>,
    /// What is left of each product.
    steps: Vec<Steps<'a>>,
    wave_limit: WaveLimit,
    running: VecDeque<Wave>,
    /// For the observer.
    token: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(engine: &'a Engine, works: Vec<Box<dyn Work<'a> + 'a>>) -> Self {
        let token = engine.watched().token();
        for work in &works {
            engine.watched().planned(token, work.plan());
        }
        let mut all = WaveSize::default();
        let steps = works.iter().enumerate().map(|(index, work)| {
            let steps = work.plan().steps();
            let several = steps.len() > 1;
            let steps: Box<dyn Iterator<Item = Step> + Send + Sync> = Box::new(steps);
            let mut steps = steps.peekable();
            if several {
                work.plan().steps().for_each(|step| all.add(index, &step));
            } else if let Some(step) = steps.peek() {
                all.add(index, step);
            }
            steps
        });
        let steps = steps.collect();
        Self {
            engine,
            steps,
            wave_limit: WaveLimit::new(&all, &engine.limits()),
            works,
            running: VecDeque::new(),
            token,
        }
    }

    /// Submits as much as may be in flight.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let engine = self.engine;
        engine.workers().run(|| self.start_here())
    }

    fn start_here(&mut self) -> Result<(), Error> {
        while self.running.len() < WAVES_IN_FLIGHT {
            let parts = self.next_parts();
            if parts.is_empty() {
                break;
            }
            let wave = Wave::start(self.engine, self.token, &self.works, parts)?;
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
            oldest.finish(self.engine, &mut self.works)?;
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

    /// The next steps, those of the first unfinished product first, as many as
    /// fit into a wave.
    fn next_parts(&mut self) -> Vec<Part> {
        let (mut parts, mut size) = (Vec::new(), WaveSize::default());
        for (work, steps) in self.steps.iter_mut().enumerate() {
            while let Some(step) = steps.peek() {
                size.add(work, step);
                if !self.wave_limit.holds(&size) && !parts.is_empty() {
                    return parts;
                }
                parts.extend(steps.next().map(|step| Part { work, step }));
            }
        }
        parts
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for wave in self.running.drain(..) {
            wave.drain(self.engine);
        }
    }
}
