// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that others get.

use rknpu_regcmd::{Layouts, MatrixLayout};
use rocket_uapi::{DmaBuf, ProgramBo};

use super::memory::Scratch;
use super::{ACTIVATION, RESULT, Staged, no_such, unavailable};
use crate::dtype::ROW_MULTIPLE;
use crate::error::Error;
use crate::exec::link;
use crate::layout;
use crate::plan::{JobPlan, TaskPlan};
use crate::programs::JobPrograms;
use crate::weights::Weights;

impl Staged<'_> {
    /// Exports a buffer of activations as a dma-buf. From now on it is read and
    /// written by the dma-buf's functions, and
    /// [`Staged::activations_mut`] refuses it; products wait for the fences that
    /// are added to it. See [`DmaBuf`] for how long to keep it. Calling this
    /// again gives the same one.
    ///
    /// # Errors
    /// [`StagedError`](crate::StagedError); the driver refuses, or no file descriptor is left.
    pub fn export_activations(&mut self, index: usize) -> Result<DmaBuf, Error> {
        let (count, buffer) = (self.activations.len(), self.activations.get(index));
        let device = buffer
            .ok_or_else(|| no_such(ACTIVATION, index, count))?
            .device;
        self.activation_memory[index]
            .export()
            .map_err(|error| match error {
                Some(error) => Error::on_device(device)(error),
                None => self.lost(ACTIVATION, index),
            })
    }

    /// Exports a buffer of results as a dma-buf. From now on it is read by the
    /// dma-buf's functions, and [`Staged::results`] refuses it; products wait for
    /// the fences that are added to it, and those who wait for its fences wait
    /// for products. See [`DmaBuf`] for how long to keep it. Calling this again
    /// gives the same one.
    ///
    /// The job that writes it gets one more task, of four rows and a group of
    /// kernels: its result, in a page that nobody else has, is the proof that
    /// the job ran.
    ///
    /// # Errors
    /// [`StagedError`](crate::StagedError); the driver refuses, or no memory or file descriptor is
    /// left.
    pub fn export_results(&mut self, index: usize) -> Result<DmaBuf, Error> {
        let count = self.results.len();
        let memory = self.result_memory.get(index);
        let memory = memory.ok_or_else(|| no_such(RESULT, index, count))?;
        if let Some(dma_buf) = &memory.shared {
            return Ok(dma_buf.clone());
        }
        let c = memory.open().map_err(|e| unavailable(e, RESULT, index))?;
        let c = (c.iova(), c.len());
        let scratch = memory.scratch.address();
        if matches!(memory.scratch, Scratch::Taken) {
            return Err(self.lost(RESULT, index));
        }
        let on = self.on(self.results[index].device);
        let buffers = self.engine.buffers(on.device);
        let part = &self.parts[index];
        let proof_plan = proof(&part.step.jobs[part.job], self.weights);
        let proof = buffers.take(proof_plan.output_bytes).map_err(on.failed())?;
        let a = self.activation_address(self.results[index].activations)?;
        let mut linked = link(self.weights, &part.step.jobs[part.job], a, c, scratch)?;
        linked.extend(link(
            self.weights,
            &proof_plan,
            a,
            (proof.iova(), proof.len()),
            None,
        )?);
        let bo = ProgramBo::new(buffers.device(), &linked).map_err(on.failed())?;
        let memory = &mut self.result_memory[index];
        let Some(own) = memory.owned.take() else {
            return Err(self.lost(RESULT, index));
        };
        match own.export() {
            Ok(dma_buf) => {
                memory.shared = Some(dma_buf.clone());
                memory.owned = Some(proof);
                self.parts[index].programs = JobPrograms { linked, bo };
                Ok(dma_buf)
            }
            Err((error, own)) => {
                memory.owned = Some(own);
                buffers.put(proof);
                Err(on.failed()(error))
            }
        }
    }
}

/// The smallest task that reads what the last one of `job` does, as a job of
/// its own.
fn proof(job: &JobPlan, weights: &Weights) -> JobPlan {
    let group = weights.precision().kernel_group();
    let tasks = job.tasks.last().map(|last| TaskPlan {
        m_padded: ROW_MULTIPLE as u32,
        n_padded: group as u32,
        c: 0,
        layouts: Layouts {
            c: MatrixLayout::Cube,
            ..last.layouts
        },
        ..last.clone()
    });
    JobPlan {
        tasks: tasks.into_iter().collect(),
        output_bytes: layout::output_bytes(job.ty, ROW_MULTIPLE, group),
        sums: Vec::new(),
        partial_bytes: 0,
        ..job.clone()
    }
}
