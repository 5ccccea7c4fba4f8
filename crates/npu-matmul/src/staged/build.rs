// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making a staged product: buffers and programs of the whole plan at once.

use std::collections::HashMap;
use std::sync::Arc;

use rocket_uapi::{Bo, Deadline, ProgramBo};

use super::memory::{ActivationMemory, ResultMemory};
use super::{Part, Staged, StagedError, regions};
use crate::error::Error;
use crate::exec::{OnDevice, link};
use crate::plan::DEVICE_BYTES_MAX;
use crate::prepared::JobPrograms;

impl Staged<'_> {
    /// Works out the buffers, before any is allocated.
    pub(super) fn describe(&mut self) -> Result<(), Error> {
        let dtype = self.weights.dtype();
        // By device, first row and first channel: which buffer of activations.
        let mut inputs: HashMap<(usize, usize, usize), usize> = HashMap::new();
        let mut bytes = vec![0_u64; self.engine.device_count()];
        for step in self.plan.steps() {
            for job in &step.jobs {
                let band = &job.band;
                let depth = band.k_tiles.first().map_or(0, |tile| tile.k.start);
                let activations = *inputs
                    .entry((job.device, band.rows.start, depth))
                    .or_insert_with(|| {
                        let buffer = regions::activations(dtype, job);
                        bytes[job.device] += buffer.bytes as u64;
                        self.activations.push(buffer);
                        self.activations.len() - 1
                    });
                bytes[job.device] += job.output_bytes as u64;
                if bytes[job.device] > DEVICE_BYTES_MAX {
                    return Err(StagedError::TooLarge {
                        device: job.device,
                        max: DEVICE_BYTES_MAX,
                    }
                    .into());
                }
                self.results.push(regions::results(job, activations));
            }
        }
        Ok(())
    }

    /// Buffers, zeroed, and programs. They may be buffers that were used before:
    /// the caller need not write padding, and who gets an exported one gets
    /// nothing else with it.
    pub(super) fn allocate(&mut self) -> Result<(), Error> {
        for buffer in &self.activations {
            let on = self.on(buffer.device);
            let bo = zeroed(on, buffer.bytes)?;
            self.activation_memory.push(ActivationMemory::Open(bo));
        }
        for step in self.plan.steps().map(Arc::new) {
            for (index, job) in step.jobs.iter().enumerate() {
                let on = self.on(job.device);
                let buffers = self.engine.buffers(job.device);
                let c = zeroed(on, job.output_bytes)?;
                let input = self.results[self.parts.len()].activations;
                let a = self.activation_address(input)?;
                let linked = link(self.weights, job, a, (c.iova(), c.len()))?;
                let bo = ProgramBo::new(buffers.device(), &linked).map_err(on.failed())?;
                self.result_memory.push(ResultMemory {
                    shared: None,
                    owned: Some(c),
                });
                self.parts.push(Part {
                    step: Arc::clone(&step),
                    job: index,
                    programs: JobPrograms { linked, bo },
                });
            }
        }
        Ok(())
    }
}

/// A buffer of zeros.
fn zeroed(on: OnDevice<'_>, bytes: usize) -> Result<Bo, Error> {
    let buffers = on.engine.buffers(on.device);
    let mut bo = buffers.take(bytes).map_err(on.failed())?;
    let mut memory = bo.write(Deadline::FOREVER).map_err(on.failed())?;
    memory.fill(0);
    memory.finish().map_err(on.failed())?;
    Ok(bo)
}
