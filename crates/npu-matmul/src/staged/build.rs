// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making a staged product: buffers and programs of the whole plan at once.

use std::collections::HashMap;
use std::sync::Arc;

use rknpu_regcmd::Iova;
use rocket_uapi::{Bo, Deadline, ProgramBo};

use super::operands::{self, OperandMemory};
use super::{ACTIVATION, RESULT, Staged, StagedError, StagedJob};
use crate::engine::Engine;
use crate::error::Error;
use crate::exec::{OnDevice, link};
use crate::packed::PackedWeights;
use crate::plan::{DEVICE_BYTES_MAX, Plan};
use crate::prepared::JobPrograms;

impl<'a> Staged<'a> {
    /// Buffers, zeroed, and programs. Buffers may have been used before: the caller need
    /// not write padding, and who gets an exported one gets nothing else with it.
    pub(super) fn new(
        engine: &'a Engine,
        weights: &'a PackedWeights,
        plan: Plan,
    ) -> Result<Self, Error> {
        let mut staged = Self {
            engine,
            weights,
            plan,
            activations: Vec::new(),
            activation_memory: Vec::new(),
            results: Vec::new(),
            result_memory: Vec::new(),
            jobs: Vec::new(),
        };
        let inputs = staged.describe()?;
        let mut addresses: Vec<(Iova, usize)> = Vec::new();
        for (index, buffer) in staged.activations.iter().enumerate() {
            let bo = zeroed(staged.on(buffer.device), buffer.bytes)?;
            addresses.push((bo.iova(), bo.len()));
            let memory = OperandMemory::new(ACTIVATION, index, bo);
            staged.activation_memory.push(memory);
        }
        for step in staged.plan.steps().map(Arc::new) {
            for (index, job) in step.jobs.iter().enumerate() {
                let on = staged.on(job.device);
                let c = zeroed(on, job.output_bytes)?;
                let at = staged.jobs.len();
                let activations = inputs[at];
                let linked = link(weights, job, addresses[activations], (c.iova(), c.len()))?;
                let device = engine.buffers(job.device).device();
                let bo = ProgramBo::new(device, &linked).map_err(on.failed())?;
                let memory = OperandMemory::new(RESULT, at, c);
                staged.result_memory.push(memory);
                staged.jobs.push(StagedJob {
                    step: Arc::clone(&step),
                    job: index,
                    activations,
                    programs: JobPrograms { linked, bo },
                });
            }
        }
        Ok(staged)
    }

    /// Works out the buffers, before any is allocated, and which activations each job
    /// reads.
    fn describe(&mut self) -> Result<Vec<usize>, Error> {
        let dtype = self.weights.dtype();
        // By device, first row and first channel: which buffer of activations.
        let mut inputs: HashMap<(usize, usize, usize), usize> = HashMap::new();
        let mut bytes = vec![0_u64; self.engine.device_count()];
        let mut of_jobs = Vec::new();
        for step in self.plan.steps() {
            for job in &step.jobs {
                let band = &job.band;
                let depth = band.k_tiles.first().map_or(0, |tile| tile.k.start);
                let activations = *inputs
                    .entry((job.device, band.rows.start, depth))
                    .or_insert_with(|| {
                        let buffer = operands::activations(dtype, job);
                        bytes[job.device] += buffer.bytes as u64;
                        self.activations.push(buffer);
                        self.activations.len() - 1
                    });
                of_jobs.push(activations);
                bytes[job.device] += job.output_bytes as u64;
                if bytes[job.device] > DEVICE_BYTES_MAX {
                    return Err(StagedError::TooLarge {
                        device: job.device,
                        max: DEVICE_BYTES_MAX,
                    }
                    .into());
                }
                self.results.push(operands::results(job));
            }
        }
        Ok(of_jobs)
    }
}

/// A buffer of zeros.
fn zeroed(on: OnDevice<'_>, bytes: usize) -> Result<Bo, Error> {
    let buffers = on.engine.buffers(on.device);
    let mut bo = buffers.take_operand(bytes).map_err(on.failed())?;
    let mut memory = bo.write(Deadline::FOREVER).map_err(on.failed())?;
    memory.fill(0);
    memory.finish().map_err(on.failed())?;
    Ok(bo)
}
